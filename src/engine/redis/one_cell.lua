-- The shortcut of a rule over one cell, read and written as in cells.lua, after clock.lua. As the
-- times are compared as texts, the cell must have been changed before now, and now must have 16
-- digits (until 2286).
if #KEYS == 1 then
  local found = call('GET', KEYS[1])
  if not found or string.byte(found, 17) == 32 and found < moment then
    local value, arguments = found and string.sub(found, 18), ARGV
    local answer, bytes, lives
    -- SHORTCUT
    if answer then
      if bytes then call('SET', KEYS[1], moment .. ' ' .. bytes, 'PX', math.ceil(lives / 1000)) end
      return answer
    end
  end
end

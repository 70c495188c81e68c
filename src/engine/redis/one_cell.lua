-- The shortcut of a rule over one cell, read and written as in cells.lua, after clock.lua. The time
-- is the text that the server gave: to make a text of a number costs more than most commands. As
-- texts are compared, the cell must have been changed before now, and now must have 16 digits
-- (until 2286).
if #KEYS == 1 then
  local micros = clock[2]
  local moment = clock[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
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

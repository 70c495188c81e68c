-- The shortcut of a rule over one cell, read and written as in cells.lua. The time stays the text
-- that it is made from: to make a text of a number costs more than most commands. As texts are
-- compared, the cell must have been changed before now, and now must have 16 digits (until 2286).
if #KEYS == 1 then
  local clock = redis.call('TIME')
  local moment = clock[1] .. (#clock[2] == 6 and clock[2] or string.sub('00000' .. clock[2], -6))
  local found = redis.call('GET', KEYS[1])
  if not found or string.byte(found, 17) == 32 and found < moment then
    local value, now, arguments = found and string.sub(found, 18), tonumber(moment), ARGV
    local answer, bytes, lives
    -- SHORTCUT
    if answer then
      if bytes then
        redis.call('SET', KEYS[1], moment .. ' ' .. bytes, 'PX', math.ceil(lives / 1000))
      end
      return answer
    end
  end
end

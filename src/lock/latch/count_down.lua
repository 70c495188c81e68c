-- Counts a latch down by one: the twin of `CountDown`. arguments: from what it counts, and how long
-- it is kept in microseconds. The answer is the value of the cell afterwards.
local from, kept = tonumber(arguments[1]), tonumber(arguments[2])
local value = values[1]
local left = from
if value then
  -- Not a latch.
  if #value ~= 8 then return value end
  local others
  others, left = struct.unpack('>I4I4', value)
  if others ~= from or left == 0 then return value end
end
value = struct.pack('>I4I4', from, left - 1)
put(1, value, kept)
return value

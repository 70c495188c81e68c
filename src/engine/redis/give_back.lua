-- Gives back locks of which all that is known stands at the holder's key. KEYS: the holder of each.
-- ARGV: how its text must start. Answers 1 for each that was given back, and 0 where the rules must
-- decide.
local held = redis.call('MGET', unpack(KEYS))
local answers, free = {}, {}
for i, start in ipairs(ARGV) do
  local plain = held[i] and string.find(held[i], start, 1, true) == 1
  answers[i] = plain and 1 or 0
  if plain then free[#free + 1] = KEYS[i] end
end
if #free > 0 then redis.call('DEL', unpack(free)) end
return answers

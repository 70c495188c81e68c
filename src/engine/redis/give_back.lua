-- Gives back locks of which all that is known stands at the holder's key. KEYS: the key of each holder. ARGV: what must stand there.
-- Answers 1 for each that was given back, and 0 for those that are not as simple as that.
local held = redis.call('MGET', unpack(KEYS))
local given, free = {}, {}
for i = 1, #KEYS do
  local plain = held[i] == ARGV[i]
  given[i] = plain and 1 or 0
  if plain then free[#free + 1] = KEYS[i] end
end
if #free > 0 then redis.call('DEL', unpack(free)) end
return given

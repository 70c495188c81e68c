-- Gives back locks that are held by one, with nobody waiting. KEYS: the key of each holder, then the state of each. ARGV: how each
-- holder's key starts. Answers 1 for each that was given back, and 0 for those that are not as simple as that.
local call, count = redis.call, #ARGV
local held = call('MGET', unpack(KEYS, 1, count))
local others = call('EXISTS', unpack(KEYS, count + 1)) > 0
local given, free = {}, {}
for i = 1, count do
  local start = ARGV[i]
  local ours = held[i] and string.sub(held[i], 1, #start) == start
  local plain = ours and not (others and call('EXISTS', KEYS[count + i]) == 1)
  given[i] = plain and 1 or 0
  if plain then free[#free + 1] = KEYS[i] end
end
if #free > 0 then call('DEL', unpack(free)) end
return given

-- Gives back locks that are held by one, with nobody waiting. KEYS of each: holder, state. ARGV of each: how the holder's key starts.
-- Answers 1 for each that was given back, and 0 for those that are not as simple as that.
local call, sub = redis.call, string.sub
local given = {}
for i = 1, #ARGV do
  local holder, start = KEYS[2 * i - 1], ARGV[i]
  local held = call('GET', holder)
  local plain = held and sub(held, 1, #start) == start and call('EXISTS', KEYS[2 * i]) == 0
  given[i] = plain and call('DEL', holder) or 0
end
return given

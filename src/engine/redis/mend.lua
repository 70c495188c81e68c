-- The counter of a name was gone, or is from before a fail-over and may have missed some: it goes on
-- at the server's time. KEYS as everywhere; ARGV: family, owner.
-- Answers the token of the claim that the owner has just taken, or 0 if it is not there any more.
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 44) ~= 'leasehold/1 ' .. ARGV[2] then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local token = math.max(now, tonumber(redis.call('GET', KEYS[2]) or 0))
redis.call('SET', KEYS[2], string.format('%.0f', token), 'EX', 86400)
return token

-- Who has just taken a lock can not tell whether its number is good: the counter was gone, or is from before a fail-over and may have
-- missed some, or others have counted too. If the lock is still the owner's, and nobody waits for it, the counter goes on at the
-- server's time. KEYS as everywhere; ARGV: family, owner. Answers the token, 0 if the claim is not there any more, or -1 if others
-- come first.
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 44) ~= 'leasehold/1 ' .. ARGV[2] then return 0 end
if redis.call('EXISTS', KEYS[3]) == 1 then return -1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if last < 0 then last = last + 9007199254740992 end
local token = math.max(now, last)
redis.call('SET', KEYS[2], string.format('%.0f', token), 'EX', 86400)
return token

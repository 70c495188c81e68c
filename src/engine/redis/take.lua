-- Takes a lock that nobody has and nobody waits for, and starts its counter if that is gone. KEYS: holder, token, state. ARGV: what
-- stands at the holder's key before the token and after it, and the lease in milliseconds. Answers the token, or 0 if the lock
-- was not to be had.
local call = redis.call
if call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
local last = tonumber(call('GET', KEYS[2]) or 0)
if not last then return redis.error_reply('WRONGTYPE the counter of the name is not a number') end
-- Its state has ended without a word.
if last < 0 then last = last + 9007199254740992 end
local clock = call('TIME')
local token = string.format('%.0f', math.max(last + 1, clock[1] * 1000000 + clock[2]))
call('SET', KEYS[2], token, 'EX', 86400)
call('SET', KEYS[1], ARGV[1] .. token .. ARGV[2], 'PX', ARGV[3])
return tonumber(token)

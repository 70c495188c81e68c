-- Writes a value only for the newest holder of the lock that protects it.
-- KEYS[1] value, KEYS[2] fence; ARGV[1] token, ARGV[2] new value.
-- Tokens stay below 2^53, so that Lua's numbers compare them exactly.
local newest = tonumber(redis.call('GET', KEYS[2]) or '0')
if newest > tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1

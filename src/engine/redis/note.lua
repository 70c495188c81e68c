-- Writes a token down, for those who look. KEYS: holder, state. ARGV: owner, token.
local owner, token = ARGV[1], ARGV[2]
-- Whatever somebody has put there instead is theirs.
local held = redis.pcall('GET', KEYS[1])
local before = 'leasehold/1 ' .. owner .. ' 1 0 '
if type(held) == 'string' and string.sub(held, 1, #before) == before then
  redis.call('SET', KEYS[1], 'leasehold/1 ' .. owner .. ' 1 ' .. token .. ' ' .. string.sub(held, #before + 1), 'KEEPTTL')
end
local packed = redis.pcall('HGET', KEYS[2], 'C' .. owner)
if type(packed) == 'string' then
  local claim = cmsgpack.unpack(packed)
  if claim.token == 0 then
    claim.token = tonumber(token)
    redis.call('HSET', KEYS[2], 'C' .. owner, cmsgpack.pack(claim))
  end
end
return 0

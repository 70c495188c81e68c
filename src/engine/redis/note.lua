-- Writes tokens down, for those who look. KEYS: holder, state for each. ARGV: owner, token for each.
for i = 1, #KEYS, 2 do
  local owner, token = ARGV[i], ARGV[i + 1]
  local held = redis.call('GET', KEYS[i])
  local before = 'leasehold/1 ' .. owner .. ' 1 0 '
  if held and string.sub(held, 1, #before) == before then
    redis.call('SET', KEYS[i], 'leasehold/1 ' .. owner .. ' 1 ' .. token .. ' ' .. string.sub(held, #before + 1), 'KEEPTTL')
  end
  local packed = redis.call('HGET', KEYS[i + 1], 'C' .. owner)
  if packed then
    local claim = cmsgpack.unpack(packed)
    if claim.token == 0 then
      claim.token = tonumber(token)
      redis.call('HSET', KEYS[i + 1], 'C' .. owner, cmsgpack.pack(claim))
    end
  end
end
return 0

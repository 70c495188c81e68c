-- Writes tokens down, for those who look. KEYS: holder, state for each. ARGV: owner, token for each.
for i = 1, #KEYS, 2 do
  local owner, token = ARGV[i], ARGV[i + 1]
  -- Whatever somebody has put there instead, the others are to be seen.
  local held = redis.pcall('GET', KEYS[i])
  local before = 'leasehold/1 ' .. owner .. ' 1 0 '
  if type(held) == 'string' and string.sub(held, 1, #before) == before then
    redis.call('SET', KEYS[i], 'leasehold/1 ' .. owner .. ' 1 ' .. token .. ' ' .. string.sub(held, #before + 1), 'KEEPTTL')
  end
  local packed = redis.pcall('HGET', KEYS[i + 1], 'C' .. owner)
  if type(packed) == 'string' then
    local claim = cmsgpack.unpack(packed)
    if claim.token == 0 then
      claim.token = tonumber(token)
      redis.call('HSET', KEYS[i + 1], 'C' .. owner, cmsgpack.pack(claim))
    end
  end
end
return 0

-- Writes tokens to the holders' keys, for those who look. KEYS: holder, state for each. ARGV: owner, token for each.
for i = 1, #KEYS, 2 do
  local held = redis.call('GET', KEYS[i])
  local before = 'leasehold/1 ' .. ARGV[i] .. ' 1 0 '
  if held and string.sub(held, 1, #before) == before and redis.call('EXISTS', KEYS[i + 1]) == 0 then
    redis.call('SET', KEYS[i], 'leasehold/1 ' .. ARGV[i] .. ' 1 ' .. ARGV[i + 1] .. ' ' .. string.sub(held, #before + 1),
      'KEEPTTL')
  end
end
return 0

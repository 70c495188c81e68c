-- The usual case: held by one, and nobody waits.
if ARGV[1] == 'lock' then
  local held = redis.call('GET', KEYS[1])
  if held and string.sub(held, 1, 47) == 'leasehold/1 ' .. ARGV[2] .. ' 1 ' then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

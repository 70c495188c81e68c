-- Gives back a lock that is held by one, and that nobody waits for. ARGV as in release.lua.
if ARGV[4] ~= '' then
  local held = redis.call('GET', KEYS[1])
  if held and string.sub(held, 1, #ARGV[4]) == ARGV[4] then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

-- Gives back a lock that is held by one, and that nobody waits for. ARGV as in release.lua.
if ARGV[4] ~= '' then
  local held = redis.call('GET', KEYS[1])
  if held and string.find(held, ARGV[4], 1, true) == 1 then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

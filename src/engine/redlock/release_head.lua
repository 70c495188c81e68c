-- The usual case of a release: a writer that knows its token, and nobody waits. Everything else is
-- left to what follows. ARGV as in release.lua.
if ARGV[3] == 'all' then
  local call = redis.call
  local found = call('MGET', KEYS[1], KEYS[2])
  if found[1] and found[2] then
    local holder, token, since = string.match(found[1], '^redlock/1 (%x+) %d+ (%d+) %d+ (%d+) ')
    local number, by = string.match(found[2], '^(%d+) (%x+)$')
    if holder == ARGV[1] and by == holder and token ~= '0' and tonumber(since) <= tonumber(ARGV[2])
      and call('EXISTS', KEYS[4], KEYS[5]) == 0 then
      -- First what takes no memory: see full_memory.lua.
      call('DEL', KEYS[1])
      call('SET', KEYS[2], number .. ' -', 'KEEPTTL')
      return 1
    end
  end
end

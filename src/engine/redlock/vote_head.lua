-- The usual case of a vote: a writer, and a name that was used before, that nobody has and nobody
-- waits for. Everything else is left to what follows. ARGV as in vote.lua.
if ARGV[3] == 'all' then
  local call = redis.call
  local found = call('MGET', KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9])
  local counter = found[2] and tonumber(string.match(found[2], '^(%d+) '))
  local first = tonumber(ARGV[10])
  if counter and not found[1] and not found[3] and found[4] == ARGV[7]
    and first > math.max(counter, tonumber(found[6] or 0))
    and call('EXISTS', KEYS[4], KEYS[5]) == 0 then
    local clock = call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local claim = 'redlock/1 ' .. ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. ARGV[10] .. ' ' .. ARGV[4] ..
      ' ' .. ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' ' .. ARGV[9]
    local life = math.ceil(tonumber(ARGV[4]) * 1.01 / 1000) + 2
    -- A key of another type is there, and is not seen above.
    if now <= tonumber(ARGV[8]) and call('SET', KEYS[1], claim, 'NX', 'PX', life) then
      local number = first + ARGV[5] - 1
      local last = string.format('%.0f', number)
      call('SET', KEYS[2], last .. ' ' .. ARGV[1], 'EX', 86400)
      if number > tonumber(found[5] or 0) then call('SET', KEYS[8], last) end
      return { 'accepted', last }
    end
  end
end

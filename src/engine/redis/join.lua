-- One more in the queue for a lock that one holds and others wait for already. This does what the rules would do with a fraction
-- of the work, or nothing: whatever is not as simple as that is left to them. What is `simple`, `settle` says.
local function join(owner)
  local found = call('HMGET', STATE, 'simple', 'holder', 'waiting', 'kept_until', 'arrivals')
  if found[1] ~= '1' or found[2] == owner or found[3] == '0' then return nil end
  local held = call('GET', HOLDER)
  if not held or string.sub(held, 1, 45) ~= MARK .. found[2] .. ' ' then return nil end
  local ends = tonumber(call('ZSCORE', ENDS, found[2]) or 0)
  if ends <= now or math.max(ends, now + PATIENCE) + HOUR > tonumber(found[4]) then return nil end
  local first = call('ZRANGE', QUEUE, 0, 0)[1]
  local alive = first and call('HGET', STATE, 'A' .. first)
  local alive_until = tonumber(string.match(alive or '0', '^%d+'))
  if alive_until <= now then return nil end

  local arrivals = text(found[5] + 1)
  if call('ZADD', QUEUE, 'NX', arrivals, owner) == 0 then return nil end
  local waiter = {
    weight = WHOLE, tokens = tonumber(ARGV[7]), lease = tonumber(ARGV[5]), delay = 0, since = now, seat = ARGV[10],
    pid = ARGV[11], host = ARGV[12], label = ARGV[13], value = ARGV[14],
  }
  call('HSET', STATE, 'W' .. owner, cmsgpack.pack(waiter), 'A' .. owner, text(now + PATIENCE) .. ' ' .. ARGV[9] .. ' ' .. ARGV[19],
    'arrivals', arrivals, 'waiting', text(found[3] + 1))
  return math.min(ends, alive_until) - now
end

-- A mutex, without a lock delay, that is asked for for the first time, and waited for.
if ARGV[1] == 'lock' and ARGV[3] == '4294967295' and ARGV[4] == ARGV[3] and ARGV[6] == '0' and ARGV[8] == '1'
  and ARGV[9] == '1' and ARGV[15] == '0' and ARGV[17] == '0' and ARGV[18] == '0' then
  local pause = join(ARGV[2])
  if pause then return { 2, pause } end
end

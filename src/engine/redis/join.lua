-- One more in the queue for a lock that one holds and others wait for already. This does what the rules would do with a fraction
-- of the work, or nothing: whatever is not as simple as that is left to them. What is `simple`, `settle` says.
local function join(owner)
  local found = call('HMGET', STATE, 'simple', 'kept_until', 'ends', 'arrivals')
  if found[1] ~= '1' then return nil end
  local ends = tonumber(found[3])
  if ends <= now or math.max(ends, now + PATIENCE) + HOUR > tonumber(found[2]) then return nil end
  local held = call('GET', HOLDER)
  local holder = held and string.match(held, '^leasehold/1[+?](%x+) ')
  if not holder or holder == owner then return nil end
  local first = call('ZRANGE', QUEUE, 0, 0)[1]
  local alive = first and call('HGET', STATE, 'A' .. first)
  local alive_until = tonumber(string.match(alive or '0', '^%d+'))
  if alive_until <= now then return nil end

  local arrivals = text(found[4] + 1)
  if call('ZADD', QUEUE, 'NX', arrivals, owner) == 0 then return nil end
  call('HSET', STATE, 'W' .. owner, text(now) .. ' ' .. ARGV[3], 'A' .. owner, text(now + PATIENCE) .. ' ' .. ARGV[7],
    'arrivals', arrivals)
  return math.min(ends, alive_until) - now
end

-- A mutex, without a lock delay, that is asked for for the first time, and waited for, and nothing else.
if ARGV[1] == 'lock' and ARGV[4] == '4294967295' and ARGV[6] == 'w' and string.sub(ARGV[7], 1, 2) == '1 '
  and string.find(ARGV[3], '^4294967295 %d+ %d+ 0 0 ') then
  local pause = join(ARGV[2])
  if pause then return { 2, pause } end
end

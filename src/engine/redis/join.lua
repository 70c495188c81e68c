-- One more in the queue for a lock that one holds. This does what the rules would do with a fraction of the work, or nothing: whatever
-- is not as simple as that is left to them. What is simple, `show` says. Who is first in the queue, and whether it still lives,
-- matters to nobody until the lock is free.
local function join(owner)
  local held = call('GET', HOLDER) or ''
  local kind, holder, lease, since = string.match(held, '^leasehold/1([+?])(%x+) %d+ %d+ (%d+) %d+ (%d+) ')
  if not kind or holder == owner then return nil end
  local found = call('HMGET', STATE, 'ends', 'kept_until', 'arrivals', 'at')
  -- While the clock is set back, what was said before must be cut.
  if not found[3] or tonumber(found[4] or 0) > now then return nil end
  -- With eight digits it is longer than that.
  local good_for = #lease > 7 and CONFIRM or math.min(lease, CONFIRM)
  local ends = kind == '+' and tonumber(found[1]) or since + good_for
  local kept_until = found[2] * 1000 - HOUR
  if ends <= now or ends > kept_until or now + PATIENCE > kept_until then return nil end

  local arrivals = tostring(found[3] + 1)
  if call('ZADD', QUEUE, 'NX', arrivals, owner) == 0 then return nil end
  call('HSET', STATE, 'W' .. owner, moment .. ' ' .. ARGV[2], 'arrivals', arrivals, 'at', moment)
  -- It may be a new key.
  call('PEXPIREAT', QUEUE, found[2])
  return ends - now
end

-- A mutex that is asked for for the first time, and waited for, and nothing else. A number alone says that it is in the queue, and how long
-- it has to wait at most.
if ARGV[3] == 'lock 4294967295 1 mw' then
  local pause = join(ARGV[1])
  if pause then return pause end
end

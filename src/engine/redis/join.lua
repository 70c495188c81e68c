-- What comes before the rules when somebody asks. ARGV: terms, owner, what is written down of it
-- while it waits, not after. ask.lua says what these are.

-- The asker has gone: whatever it would get, nobody would hold.
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then return { 5, now } end

-- Joins the queue for a lock that another holds, as the rules would, with a fraction of the work.
-- What is not simple is left to the rules; the letter at the holder's key says what is simple. Who
-- is first in the queue, and whether it still lives, matters to nobody until the lock is free.
-- Answers how long it has to wait at most.
local function join(owner)
  local kind, holder, _, ends = read_queued(call('GET', HOLDER), CONFIRM)
  if not kind or holder == owner then return nil end
  local found = call('HMGET', STATE, 'ends', 'kept_until', 'arrivals', 'at')
  -- While the clock is set back, what was written before must be cut.
  if not found[3] or tonumber(found[4] or 0) > now then return nil end
  ends = ends or tonumber(found[1])
  local kept_until = found[2] * 1000 - HOUR
  if ends <= now or ends > kept_until or now + PATIENCE > kept_until then return nil end

  local arrivals = tostring(found[3] + 1)
  if call('ZADD', QUEUE, 'NX', arrivals, owner) == 0 then return nil end
  call('HSET', STATE, 'W' .. owner, moment .. ' ' .. ARGV[3], 'arrivals', arrivals, 'at', moment)
  -- It may be a new key.
  call('PEXPIREAT', QUEUE, found[2])
  return ends - now
end

-- A mutex, asked for the first time, and waited for. A number alone means that it is queued.
if ARGV[1] == 'lock 4294967295 1 mw' then
  local pause = join(ARGV[2])
  if pause then return pause end
end

-- A waiter that asks again takes no more memory: see full_memory.lua.
if not string.find(ARGV[1], '^%a+ %d+ 1 ') then call('HDEL', STATE, '') end

-- Gives a lock that has a queue to the next in it, as the rules would, with a fraction of the work.
-- What is not simple is left to the rules; the letter at the holder's key says what is simple.
-- ARGV as in release.lua.
local function hand_over()
  local _, owner, had, ends = read_queued(call('GET', HOLDER), CONFIRM)
  -- With one token: what is left of several is free again.
  if owner ~= ARGV[2] or had ~= '1' then return false end

  -- It takes no memory, and what follows may therefore take some: see full_memory.lua.
  local popped = call('ZPOPMIN', QUEUE)
  local next = popped[1]
  if not next then return false end
  local waiter = 'W' .. next
  local found = call('HMGET', STATE, waiter, 'A' .. next, 'last', 'ends', 'at')
  ends = ends or tonumber(found[4])
  local came, listens, tokens, wants, at, seat =
    string.match(found[1] or '', '^(%d+) (%S) 4294967295 (%d+) (%d+) 0 0 ()(%d+) ')
  local alive_until, round
  if found[2] then alive_until, round = string.match(found[2], '^(%d+) (%d+)$') end
  if ends <= now or not found[3] or not came or tonumber(alive_until or came + PATIENCE) <= now
    or tonumber(found[5] or 0) > now then
    -- The holder was too late, or the next one wants something else, or is dead, or the clock was
    -- set back.
    call('ZADD', QUEUE, popped[2], next)
    call('PEXPIREAT', QUEUE, call('HGET', STATE, 'kept_until') or '0')
    return false
  end

  call('HDEL', STATE, waiter)
  if found[2] then call('HDEL', STATE, 'A' .. next) end
  local last = found[3] + 1
  local token = last > now and text(last) or moment
  call('HSET', STATE, 'last', tokens == '1' and token or text(token + tokens - 1), 'at', moment)
  -- A lease of eight digits is longer than CONFIRM.
  local left = #wants > 7 and '13000' or math.ceil((math.min(wants, CONFIRM) + GRACE) / 1000)
  local who = string.sub(found[1], at)
  call('SET', HOLDER, holder_text('?', next, tokens, token, wants, '0', moment, who), 'PX', left)
  tell_of_grant(next, seat, listens, token, tokens, round or '1')
  return true
end

if ARGV[1] == 'lock' and hand_over() then return 1 end

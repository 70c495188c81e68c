-- Where many want the same lock, one release after the other gives it to the next in the queue. This does what the rules would
-- do with a fraction of the work, or nothing: whatever is not as simple as that is left to them. What is simple, `show` says.
local function hand_over()
  local held = call('GET', HOLDER) or ''
  -- With one token: what is left of several is free again.
  local kind, lease, since = string.match(held, '^leasehold/1([+?])' .. ARGV[2] .. ' 1 %d+ (%d+) %d+ (%d+) ')
  if not kind then return false end

  -- It takes no memory, and what follows may therefore take some: see full_memory.lua.
  local popped = call('ZPOPMIN', QUEUE)
  local next = popped[1]
  if not next then return false end
  local waiter = 'W' .. next
  local found = call('HMGET', STATE, waiter, 'A' .. next, 'last', 'ends', 'at')
  -- With eight digits it is longer than that.
  local good_for = #lease > 7 and CONFIRM or math.min(lease, CONFIRM)
  local ends = kind == '+' and tonumber(found[4]) or since + good_for
  local came, listens, tokens, wants, at, seat =
    string.match(found[1] or '', '^(%d+) (%S) 4294967295 (%d+) (%d+) 0 0 ()(%d+) ')
  local alive_until, round
  if found[2] then alive_until, round = string.match(found[2], '^(%d+) (%d+)$') end
  if ends <= now or not found[3] or not came or tonumber(alive_until or came + PATIENCE) <= now or tonumber(found[5] or 0) > now then
    -- For the rules: the holder was too late, or the next one wants something else, or is dead, or the clock was set back.
    call('ZADD', QUEUE, popped[2], next)
    call('PEXPIREAT', QUEUE, call('HGET', STATE, 'kept_until') or '0')
    return false
  end

  call('HDEL', STATE, waiter)
  if found[2] then call('HDEL', STATE, 'A' .. next) end
  local last = found[3] + 1
  local token = last > now and text(last) or moment
  call('HSET', STATE, 'last', tokens == '1' and token or text(token + tokens - 1), 'at', moment)
  local left = #wants > 7 and '13000' or math.ceil((math.min(wants, CONFIRM) + GRACE) / 1000)
  call('SET', HOLDER, 'leasehold/1?' .. next .. ' ' .. tokens .. ' ' .. token .. ' ' .. wants .. ' 0 ' .. moment .. ' ' ..
    string.sub(found[1], at), 'PX', left)
  tell_of_grant(next, seat, listens, token, tokens, round or '1')
  return true
end

if ARGV[1] == 'lock' and hand_over() then return 1 end

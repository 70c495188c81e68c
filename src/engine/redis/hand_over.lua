-- Where many want the same lock, one release after the other gives it to the next in the queue. This does what the rules would
-- do with a fraction of the work, or nothing: whatever is not as simple as that is left to them. What is simple, `show` says.
local function hand_over()
  local held = call('GET', HOLDER) or ''
  if string.sub(held, 13, 44) ~= ARGV[2] then return false end
  -- With one token: what is left of several is free again.
  local kind, lease, since = string.match(held, '^leasehold/1([+?])%x+ 1 %d+ (%d+) %d+ (%d+) ')
  local found = kind and call('HMGET', STATE, 'last', 'ends') or {}
  if not found[1] then return false end
  local ends = kind == '+' and tonumber(found[2]) or since + math.min(tonumber(lease), CONFIRM)
  if ends <= now then return false end

  -- It takes no memory, and what follows may therefore take some: see full_memory.lua.
  local popped = call('ZPOPMIN', QUEUE)
  local next = popped[1]
  if not next then return false end
  local waits = call('HMGET', STATE, 'W' .. next, 'A' .. next)
  local came, listens, tokens, wants, at, seat =
    string.match(waits[1] or '', '^(%d+) (%S) 4294967295 (%d+) (%d+) 0 0 ()(%d+) ')
  local alive_until, round = string.match(waits[2] or '', '^(%d+) (%d+)$')
  if not came or tonumber(alive_until or came + PATIENCE) <= now then
    -- For the rules: it wants something else, or is dead.
    call('ZADD', QUEUE, popped[2], next)
    call('PEXPIREAT', QUEUE, call('HGET', STATE, 'kept_until') or '0')
    return false
  end

  call('HDEL', STATE, 'W' .. next, waits[2] and 'A' .. next or '')
  local token = found[1] + 1 > now and text(found[1] + 1) or moment
  call('HSET', STATE, 'last', tokens == '1' and token or text(token + tokens - 1))
  local left = tonumber(wants) >= CONFIRM and '13000' or math.ceil((wants + GRACE) / 1000)
  call('SET', HOLDER, 'leasehold/1?' .. next .. ' ' .. tokens .. ' ' .. token .. ' ' .. wants .. ' 0 ' .. moment .. ' ' ..
    string.sub(waits[1], at), 'PX', left)
  tell_of_grant(next, seat, listens, token, tokens, round or '1')
  return true
end

if ARGV[1] == 'lock' and hand_over() then return 1 end

-- Where many want the same lock, one release after the other gives it to the next in the queue. This does what the rules would
-- do with a fraction of the work, or nothing: whatever is not as simple as that is left to them. What is `simple`, `settle`
-- says.
local function hand_over()
  local shown = call('MGET', HOLDER, TOKEN)
  -- With one token: what is left of several is free again.
  local owner, last = string.match(shown[1] or '', '^leasehold/1[+?](%x+) 1 '), tonumber(shown[2] or 0)
  if owner ~= ARGV[2] or last >= 0 then return false end
  local found = call('HMGET', STATE, 'simple', 'ends', 'kept_until')
  if found[1] ~= '1' or tonumber(found[2]) <= now or now + PATIENCE + HOUR > tonumber(found[3]) then return false end

  -- It takes no memory, and what follows may therefore take some: see full_memory.lua.
  local popped = call('ZPOPMIN', QUEUE)
  local next = popped[1]
  if not next then return false end
  local waits = call('HMGET', STATE, 'W' .. next, 'A' .. next)
  local tokens, lease, at, seat = string.match(waits[1] or '', '^%d+ 4294967295 (%d+) (%d+) 0 0 ()(%d+) ')
  local alive_until, round, listens = string.match(waits[2] or '', '^(%d+) (%d+) ?(%S?)')
  if not tokens or not round or tonumber(alive_until) <= now then
    call('ZADD', QUEUE, popped[2], next)
    call('PEXPIRE', QUEUE, text((found[3] - now) / 1000))
    return false
  end

  local token = math.max(last + BELOW + 1, now)
  local ends = now + math.min(tonumber(lease), CONFIRM)
  call('HDEL', STATE, 'W' .. next, 'A' .. next)
  call('HSET', STATE, 'ends', text(ends))
  -- Its day begins again when `kept_until` leads to the rules.
  call('SET', TOKEN, text(token + tokens - 1 - BELOW), 'KEEPTTL')
  token = text(token)
  call('SET', HOLDER, 'leasehold/1?' .. next .. ' ' .. tokens .. ' ' .. token .. ' ' .. lease .. ' 0 ' .. text(now) .. ' ' ..
    string.sub(waits[1], at), 'PX', math.ceil((ends - now + GRACE) / 1000))
  tell_of_grant(next, seat, listens, token, tokens, round)
  return true
end

if ARGV[1] == 'lock' and hand_over() then return 1 end

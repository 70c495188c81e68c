-- Where many want the same lock, one release after the other gives it to the next in the queue. This does what the rules would
-- do with a fraction of the work, or nothing: whatever is not as simple as that is left to them. What is `simple`, `settle`
-- says.
local function hand_over(owner, last)
  local found = call('HMGET', STATE, 'simple', 'holder', 'waiting', 'kept_until')
  if found[1] ~= '1' or found[2] ~= owner or found[3] == '0' then return false end
  if tonumber(call('ZSCORE', ENDS, owner) or 0) <= now then return false end
  local next = call('ZRANGE', QUEUE, 0, 0)[1]
  local waits = next and call('HMGET', STATE, 'W' .. next, 'A' .. next)
  if not waits or not waits[1] then return false end
  local waiter = cmsgpack.unpack(waits[1])
  local alive_until, round, listens = string.match(waits[2] or '0 0', '^(%d+) (%d+) ?(%S?)')
  if tonumber(alive_until) <= now or waiter.weight ~= WHOLE or waiter.delay > 0 then return false end
  local ends = now + math.min(waiter.lease, CONFIRM)
  if math.max(ends, now + PATIENCE) + HOUR > tonumber(found[4]) then return false end

  local claim = claim_for(waiter, math.max(tonumber(last or 0) + 1, now), false)
  local highest = text(claim.token + claim.tokens - 1)
  -- First what takes no memory: see full_memory.lua.
  call('HDEL', STATE, 'C' .. owner, 'W' .. next, 'A' .. next)
  call('HSET', STATE, 'C' .. next, cmsgpack.pack(claim), 'holder', next, 'waiting', found[3] - 1)
  -- Never empty in between: an empty set is gone, and its expiry with it.
  call('ZADD', ENDS, text(ends), next)
  call('ZREM', ENDS, owner)
  call('ZREM', QUEUE, next)
  -- Its day begins again when `kept_until` leads to the rules.
  call('SET', TOKEN, highest, 'KEEPTTL')
  call('SET', HOLDER, holder_text(next, claim), 'PX', math.ceil((ends - now) / 1000) + GRACE / 1000)
  tell_of_grant(next, waiter.seat, listens, claim, round)
  return true
end

if ARGV[1] == 'lock' then
  local found = call('MGET', HOLDER, TOKEN)
  local held = found[1]
  -- With one token: what is left of several is free again.
  if held and string.sub(held, 1, 47) == MARK .. ARGV[2] .. ' 1 ' and hand_over(ARGV[2], found[2]) then return 1 end
end

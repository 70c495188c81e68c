-- What is known of a name. Answers the time, the claims (text and what is left in ms) and those who wait (owner and text).
call('HDEL', STATE, '')
expire_readers()
local claims = {}
if kind == 'owner' or kind == 'stranger' then
  claims[1] = { held, text(call('PTTL', HOLDER)) }
elseif kind == 'shared' then
  local ends = call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local claim = call('HGET', STATE, 'C' .. ends[i])
    if claim then claims[#claims + 1] = { MARK .. claim, text((ends[i + 1] - now) / 1000) } end
  end
end
local waiters = {}
for _, waiter in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
  local found = call('HMGET', STATE, 'A' .. waiter, 'W' .. waiter)
  if found[2] and tonumber(found[1] or 0) > now then waiters[#waiters + 1] = { waiter, found[2] } end
end
return { text(now), claims, waiters }

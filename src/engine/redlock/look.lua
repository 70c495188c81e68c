-- What is known of a name. Answers the time, the claims and those who wait (owner and text).
local waiters = {}
for _, waiter in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
  local found = call('HMGET', STATE, 'A' .. waiter, 'W' .. waiter)
  if found[2] and tonumber(found[1] or 0) > now then
    waiters[#waiters + 1] = { waiter, found[2] }
  end
end
return { text(now), claims, waiters }

-- What is known of a name. ARGV: family, last change seen, waiters wanted (0 or 1).

-- What time alone has changed is written down first, so that whoever watches hears of it.
expire()
believe_until()
advance()
note_change()
-- Read before it may be thrown away.
local changes = {}
local seen = tonumber(ARGV[2])
if state.changes and state.changes > seen then
  for _, packed in ipairs(call('LRANGE', LOG, 0, -1)) do
    local change = cmsgpack.unpack(packed)
    if change.number > seen then
      changes[#changes + 1] = { text(change.number), text(change.token),
        { change.pid, change.host, change.label }, change.value }
    end
  end
end
local claims = {}
local all = holders()
for i = 1, #all, 2 do
  local claim = claim_of(all[i])
  if claim then claims[#claims + 1] = row_of(all[i], claim, all[i + 1]) end
end
settle()

local held, left = '', 0
if stranger then
  held, left = call('GET', HOLDER) or '', call('PTTL', HOLDER)
end
local waiters = {}
if ARGV[3] == '1' then
  for _, owner in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
    local waiting = call('HMGET', STATE, 'W' .. owner, 'A' .. owner)
    if waiting[1] then
      local waiter = read_waiter(waiting[1])
      waiters[#waiters + 1] = { owner, waiter.seat, text(waiter.weight), text(waiter.tokens),
        text(waiter.lease), text(waiter.delay), text(waiter.since),
        text((sign_of_life(waiter, waiting[2]))), { waiter.pid, waiter.host, waiter.label },
        waiter.value }
    end
  end
end
return { text(now), held, text(left), text(state.capacity), text(state.closed), text(state.waiting),
  text(state.changes or 0), claims, waiters, changes }

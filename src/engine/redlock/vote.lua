-- Asks for a vote. ARGV: owner, stamp, `all` or `shared`, lease, tokens, wait, run, not after, who
-- asks (seat, pid, host, label), first token. Answers { 'accepted', counter }, { 'granted', counter
-- }, { 'taken', by, left, counter }, { 'late', time }, { 'gone' } if it is undone, or {
-- 'quarantine' }.
local shared, lease, wait = ARGV[3] == 'shared', tonumber(ARGV[4]), ARGV[6] == '1'
local run, not_after, who = ARGV[7], tonumber(ARGV[8]), ARGV[9]

if call('GET', MEMBER) ~= run then return { 'quarantine' } end
if now > not_after then return { 'late', text(now) } end
if tonumber(call('GET', GONE) or 0) >= stamp then return { 'gone' } end

-- A key of another type stops the script here, before anything is written.
local last = counter()
if not last then return redis.error_reply('WRONGTYPE the counter of the name is not a number') end
call('HLEN', STATE)
call('ZCARD', QUEUE)
expire_readers()
local mine = is_mine()
if mine then
  local _, token, since = my_claim()
  -- Asked twice: it has been answered, and used.
  if since > stamp or (since == stamp and token ~= '0') then return { 'gone' } end
end

-- What ends later than if it had been written now was written before the clock was set back, and is
-- cut to that. It ends no earlier than its owner expects, who counts from before it asked. Of
-- readers, the one that ends last decides.
local function cut()
  if kind == 'owner' then
    local most = string.match(held, '^%S+ %x+ %d+ %d+ (%d+) ')
    most = most and life(tonumber(most))
    if most and call('PTTL', HOLDER) > most then call('PEXPIRE', HOLDER, text(most)) end
  elseif kind == 'shared' then
    local before
    repeat
      before = call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')
      local claim = before[1] and call('HGET', STATE, 'C' .. before[1])
      local most = string.match(claim or '', '^%x+ %d+ %d+ (%d+) ')
      most = most and now + life(tonumber(most)) * 1000
      local late = most and tonumber(before[2]) > most
      if late then
        call('ZADD', ENDS, text(most), before[1])
        show_readers()
      end
    until not late
  end
end

-- The writer that waits, if there is one: readers do not overtake it.
local function waiting_writer()
  for _, waiter in ipairs(call('ZRANGE', QUEUE, 0, 63)) do
    if waiter ~= owner then
      local found = call('HMGET', STATE, 'A' .. waiter, 'W' .. waiter)
      local alive_until = tonumber(found[1] or 0)
      if alive_until > now + PATIENCE then
        alive_until = now + PATIENCE
        call('HSET', STATE, 'A' .. waiter, text(alive_until))
      end
      if found[2] and alive_until > now and string.sub(found[2], 1, 4) == 'all ' then
        return alive_until - now
      end
    end
  end
end

local by, left
if kind == 'owner' and holder_of ~= owner or kind == 'shared' and not shared then cut() end
if kind == 'stranger' then
  by, left = '=' .. held, call('PTTL', HOLDER) * 1000
elseif kind == 'owner' and (holder_of ~= owner or shared) then
  by, left = holder_of, call('PTTL', HOLDER) * 1000
elseif kind == 'shared' and not shared then
  by, left = 'shared', call('PTTL', HOLDER) * 1000
elseif shared and not mine then
  left = waiting_writer()
  if left then by = 'waiting' end
end

if by then
  -- A lock that somebody made to last for ever.
  if left < 0 then left = DAY * 1000000 end
  if wait then
    call('ZADD', QUEUE, 'NX', text(now), owner)
    local weight = shared and 'shared ' or 'all '
    local since = call('ZSCORE', QUEUE, owner)
    local waiter = weight .. text(since) .. ' ' .. ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. who
    call('HSET', STATE, 'W' .. owner, waiter, 'A' .. owner, text(now + PATIENCE))
    call('EXPIRE', STATE, DAY)
    call('EXPIRE', QUEUE, DAY)
  end
  return { 'taken', by, text(left), text(last) }
end

-- A counter that is gone goes on above all that this server ever gave; if the proposed token is too
-- low, also at the clock.
local base = last == 0 and tonumber(call('GET', TOP) or 0) or last
base = math.max(base, tonumber(call('GET', FLOOR) or 0))
local first, token = tonumber(ARGV[10]), '0'
if first > base then
  last, token = first + tonumber(ARGV[5]) - 1, ARGV[10]
else
  last = (last == 0 and math.max(base, now - 1) or base) + 1
end
set_counter(last, owner)
store(claim_text(ARGV[5], token, ARGV[4], ARGV[2], who), shared, lease)
if token == '0' then return { 'granted', text(last) } end
leave_queue(owner)
-- Those who can share come in together.
if shared then wake(true) end
return { 'accepted', text(last) }

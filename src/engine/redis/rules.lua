-- The rules of a claim, as src/claim/state.rs has them, on the keys of one name. Comes before every script that
-- changes a name; what the numbers and fields mean is in docs/redis.md.
--
-- Every script ends with `settle`, which writes down what it found and did, and tells those whose turn it is.

-- Locks show their holder to strangers, at a key of its own.
local shown = family == 'lock'

-- A stranger's release is not told to us: whoever waits looks this often.
local STRANGER = 50000
-- A name that always goes from one of ours to the next is never free when a stranger asks. So where strangers were seen,
-- or are expected, it is left free for LEFT_FREE now and then: after a thirtieth or so of the time since they were seen,
-- within these limits.
local LEFT_FREE = 50000
local SOONEST, LATEST = 400000, 30000000
local DAY = 86400000000
-- A name whose capacity was changed is remembered for so long after its last use.
local RESIZED = 30 * DAY
local LOG_LENGTH = 32

local state = {}
do
  local found = call('HMGET', STATE, 'format', 'declared', 'capacity', 'used', 'closed', 'upgrader',
    'upgrade_until', 'arrivals', 'changes', 'changed_at', 'kept_until', 'holder', 'ends', 'confirmed', 'delay', 'strangers', 'last', 'at')
  if found[1] and found[1] ~= '1' then
    return redis.error_reply('LEASEHOLD format ' .. found[1])
  end
  state.stored = found[1]
  state.declared = tonumber(found[2] or 0)
  state.capacity = tonumber(found[3] or 0)
  state.used = tonumber(found[4] or 0)
  state.closed = tonumber(found[5] or 0)
  state.upgrader = found[6] or nil
  if state.upgrader == '' then state.upgrader = nil end
  state.upgrade_until = tonumber(found[7] or 0)
  state.arrivals = tonumber(found[8] or 0)
  state.changes = found[9] and found[9] ~= '' and tonumber(found[9]) or nil
  state.changed_at = tonumber(found[10] or 0)
  state.kept_until = tonumber(found[11] or 0) * 1000
  -- What we left at the holder's key: the `sole` claim, `shared`, `closed`, or nothing.
  state.holder = found[12] or ''
  -- The end of the sole claim, and whether its owner has said that it knows, where the holder's key does not say it.
  state.ends, state.confirmed = tonumber(found[13] or 0), found[14] == '1'
  -- The longest lock delay of all claims since the name was last free.
  state.delay = tonumber(found[15] or 0)
  -- When one was last seen (0 is never), when the name was last free for them, and until when it is left free.
  local seen, free_at, free_until = string.match(found[16] or '0 0 0', '^(%d+) (%d+) (%d+)$')
  state.seen, state.free_at, state.free_until = tonumber(seen), tonumber(free_at), tonumber(free_until)
  -- By a clock that was set back since.
  if state.free_at > now then state.free_at, state.free_until = now, 0 end
  state.last = tonumber(found[17] or 0)
  -- When anything of it was last written.
  state.at = tonumber(found[18] or 0)
end

local strangers_changed
local function expect_strangers()
  state.seen, strangers_changed = now, true
  if state.free_at == 0 then state.free_at = now end
end

-- The highest token that was reserved. While a lock has a state, it is there.
local last, last_changed
if state.stored and shown then last = state.last end
local function last_token()
  if not last then
    last = tonumber(call('GET', TOKEN) or 0)
    if last and last < 0 then last = last + BELOW end
  end
  return last
end
local function set_last_token(token)
  last, last_changed = token, true
end

if state.stored then
  state.waiting = call('ZCARD', QUEUE)
else
  -- A key of another type stops the script here, before anything is written, and not half way.
  local left = call('HLEN', STATE) + call('ZCARD', ENDS) + call('ZCARD', QUEUE) + call('LLEN', LOG)
  if not last_token() then return redis.error_reply('WRONGTYPE the counter of the name is not a number') end
  -- What a script left that was stopped half way, because its user may not do everything, or that lost its state: nothing
  -- in it can be relied on.
  if left > 0 then call('DEL', STATE, ENDS, QUEUE, LOG) end
  state.waiting = 0
end

-- A lock that one has all of: its owner, its claim and its end. The claim stands at the holder's key and nowhere else. All other
-- claims are in a table of their own.
local sole

local function claim_of(owner)
  if sole then return sole.owner == owner and sole.claim or nil end
  local packed = call('HGET', STATE, 'C' .. owner)
  return packed and cmsgpack.unpack(packed) or nil
end

local claims_added, holder_stale
local function put_in_table(owner, claim, ends)
  call('HSET', STATE, 'C' .. owner, cmsgpack.pack(claim))
  if ends then
    call('ZADD', ENDS, text(ends), owner)
    claims_added = true
  end
end

-- How long a claim lasts after its owner was last heard of.
local function believed(claim)
  return claim.confirmed and claim.lease or math.min(claim.lease, CONFIRM)
end

local function store_claim(owner, claim)
  if sole and claim.weight == WHOLE then
    sole.claim, holder_stale = claim, true
  elseif sole then
    put_in_table(owner, claim, sole.ends)
    -- It may have been heard of before the clock was set back.
    state.at = math.max(state.at, sole.ends - believed(claim))
    sole = nil
  else
    put_in_table(owner, claim)
  end
end

local function add_claim(owner, claim, ends)
  if shown and claim.weight == WHOLE and state.used == 0 then
    sole = { owner = owner, claim = claim, ends = ends }
  else
    put_in_table(owner, claim, ends)
  end
  state.used = state.used + claim.weight
  state.delay = math.max(state.delay, claim.delay)
  holder_stale = true
end

local function remove_claim(owner)
  local claim = claim_of(owner)
  if sole then
    if claim then sole = nil end
  else
    call('HDEL', STATE, 'C' .. owner)
    call('ZREM', ENDS, owner)
  end
  if claim then
    state.used = state.used - claim.weight
    holder_stale = true
  end
  return claim
end

-- Those who hold, each followed by its end; the first to end comes first.
local function holders()
  if sole then return { sole.owner, sole.ends } end
  return call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
end

local function first_holder()
  if sole then return sole.owner, sole.ends end
  local first = call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

local function holds(owner)
  if sole then return sole.owner == owner end
  return call('ZSCORE', ENDS, owner) and true
end

local function count_holders()
  return sole and 1 or call('ZCARD', ENDS)
end

local function ends_at(owner, ends)
  if sole then sole.ends = ends else call('ZADD', ENDS, text(ends), owner) end
end

local function grant_of(claim)
  return { token = claim.token, tokens = claim.tokens }
end

-- What a waiter is written down as: when it came, how it listens (`s` where the name is, `-` everywhere), weight, tokens, lease, delay,
-- the length of its value, the value, seat, process, host and label. The asker writes all but the first.
local function read_waiter(written)
  local since, listens, weight, tokens, lease, delay, length, at =
    string.match(written, '^(%d+) (%S) (%d+) (%d+) (%d+) (%d+) (%d+) ()')
  local seat, pid, host, label = string.match(written, '^(%d+) (%d+) (%S+) (.*)$', at + length)
  return {
    weight = tonumber(weight), tokens = tonumber(tokens), lease = tonumber(lease), delay = tonumber(delay),
    since = tonumber(since), listens = listens, value = string.sub(written, at, at + length - 1), seat = seat, pid = pid,
    host = host, label = label,
  }
end

-- Until when a waiter is believed to live, and how often it has asked. That is written down when it asks again.
local function sign_of_life(waiter, again)
  local alive_until, round = string.match(again or '', '^(%d+) (%d+)$')
  return tonumber(alive_until or waiter.since + PATIENCE), round or '1'
end

-- The claim that a waiter gets.
local function claim_for(waiter, token, confirmed)
  return {
    weight = waiter.weight, token = token, tokens = waiter.tokens, lease = waiter.lease, delay = waiter.delay,
    since = now, confirmed = confirmed, seat = waiter.seat, pid = waiter.pid, host = waiter.host,
    label = waiter.label, value = waiter.value,
  }
end

-- What stands at the holder's key for a claim. Times and tokens have more digits than Lua writes by itself.
local function holder_text(kind, owner, claim)
  return MARK .. kind .. owner .. ' ' .. claim.tokens .. ' ' .. text(claim.token) .. ' ' .. text(claim.lease) .. ' ' ..
    text(claim.delay) .. ' ' .. text(claim.since) .. ' ' .. claim.seat .. ' ' .. claim.pid .. ' ' .. claim.host .. ' ' .. claim.label
end

-- Until when a stranger holds the name.
local stranger
-- Where the holder's key says that the rest is.
local kind
-- What strangers see decides. If the holder's key is not what we left there, somebody took the name away.
if shown then
  local held = call('GET', HOLDER)
  local ours
  kind, ours = string.match(held or '', '^leasehold/1([ +?:])(%S+)')
  if held and not ours and string.sub(held, 1, 10) == 'leasehold/' then
    return redis.error_reply('LEASEHOLD format ' .. string.match(held, '^leasehold/(%S*)'))
  end
  local by_one = ours and ours ~= 'shared' and ours ~= 'closed'
  local as_left = state.holder == ours or state.holder == 'sole' and by_one and kind ~= ' '
  if state.holder ~= '' and not as_left then
    for _, owner in ipairs(call('ZRANGE', ENDS, 0, -1)) do
      remove_claim(owner)
    end
    state.used, holder_stale = 0, true
    state.holder, state.closed, state.upgrader = '', 0, nil
  end
  if held and not ours then
    local left = call('PTTL', HOLDER)
    stranger = left < 0 and math.huge or now + left * 1000
    -- It has the name: what was left free for it is over.
    state.seen, state.free_at, state.free_until, strangers_changed = now, now, 0, true
  elseif by_one then
    local owner, tokens, token, lease, delay, since, seat, pid, host, label =
      string.match(held, '^............(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    if not owner then
      return redis.error_reply('LEASEHOLD format of the holder')
    end
    -- It may be known to the owner alone: whoever asks about its own claim says it.
    if token == '0' and asker == owner then token = known_token end
    local claim = {
      weight = WHOLE, token = tonumber(token), tokens = tonumber(tokens), lease = tonumber(lease),
      delay = tonumber(delay), since = tonumber(since), confirmed = kind == '+' or state.confirmed, seat = seat, pid = pid, host = host,
      label = label, value = '',
    }
    if state.holder == 'sole' then
      if kind == '?' then
        claim.confirmed, state.ends = false, claim.since + math.min(claim.lease, CONFIRM)
      end
      sole = { owner = owner, claim = claim, ends = state.ends }
    else
      -- Taken while nobody else cared: all that is known of it is here.
      claim.confirmed = true
      state.declared, state.capacity = WHOLE, WHOLE
      local left = call('PTTL', HOLDER)
      -- The lease of a key that somebody made to last for ever is counted from now.
      add_claim(owner, claim, left < 0 and now + lease or now + left * 1000)
      state.holder = 'sole'
    end
  elseif ours and state.holder == '' then
    -- A mark that nobody stands behind any more.
    state.holder, holder_stale = ours, true
  end
end

-- Takes away the claims whose time is over; false if there are none.
local function expire()
  local over
  if sole then
    over = sole.ends <= now and { sole.owner, sole.ends } or {}
  else
    over = call('ZRANGEBYSCORE', ENDS, '-inf', text(now), 'WITHSCORES')
  end
  for i = 1, #over, 2 do
    local claim = remove_claim(over[i])
    -- Who never heard of its grant has nothing under way that the delay would wait for.
    if claim and claim.confirmed and claim.delay > 0 then
      state.closed = math.max(state.closed, over[i + 1] + claim.delay)
    end
  end
  return #over > 0
end

-- Believes nobody for longer than if all that was said had been said now. What ends later than that was said before the clock was
-- set back. Its owner counts its own deadline from before it said so, so a lease that is counted from now ends no earlier than
-- the owner expects.
local function believe_until()
  if sole then
    local latest = now + believed(sole.claim)
    if sole.ends > latest then sole.ends, holder_stale = latest, true end
  elseif state.at > now then
    local all = holders()
    for i = 1, #all, 2 do
      local claim = claim_of(all[i])
      local latest = claim and now + believed(claim)
      if latest and tonumber(all[i + 1]) > latest then
        ends_at(all[i], latest)
        holder_stale = true
      end
    end
  end
  state.upgrade_until = math.min(state.upgrade_until, now + PATIENCE)
end

-- Counts the owner's lease from now; its grant, if it has one.
local function extend(owner, lease)
  local claim = claim_of(owner)
  if not claim then return nil end
  if (lease and lease ~= claim.lease) or not claim.confirmed then
    claim.lease, claim.confirmed = lease or claim.lease, true
    store_claim(owner, claim)
  end
  ends_at(owner, now + claim.lease)
  holder_stale = true
  return grant_of(claim)
end

local function admits(weight)
  return not stranger and state.closed <= now and not state.upgrader and state.used + weight <= state.capacity
end

local function agrees(capacity)
  return capacity == state.declared or capacity == state.capacity
end

local function in_use()
  return state.used > 0 or state.waiting > 0
end

-- Gives a waiter its claim. `believed` is how long it may stay silent.
local function grant(owner, waiter, confirmed)
  local claim = claim_for(waiter, math.max(last_token() + 1, now), confirmed)
  set_last_token(claim.token + claim.tokens - 1)
  add_claim(owner, claim, now + believed(claim))
  return grant_of(claim)
end

local wakes = {}

local function finish_upgrade()
  local owner = state.upgrader
  if stranger or state.closed > now or count_holders() ~= 1 then return end
  local claim = claim_of(owner)
  if not claim then return end
  local token = math.max(last_token() + 1, now)
  set_last_token(token)
  claim.weight, claim.token, claim.tokens, claim.since = state.capacity, token, 1, now
  store_claim(owner, claim)
  wakes[#wakes + 1] = { owner = owner, seat = claim.seat }
  state.used, state.upgrader, holder_stale = state.capacity, nil, true
end

local function live_upgrader()
  return state.upgrader and state.upgrade_until > now and holds(state.upgrader)
end

-- Whether the name, which could be given to a waiter, is left free for strangers instead. Without strangers it never is.
local function left_free()
  if state.free_until > now then return true end
  if state.seen == 0 or state.used > 0 then return false end
  local after = math.min(math.max((now - state.seen) / 32, SOONEST), LATEST)
  -- And up to twice that: who looks at regular times must not always look at the wrong ones.
  if now - state.free_at < after * (1 + state.free_at % 997 / 997) then return false end
  state.free_at, state.free_until, strangers_changed = now, now + LEFT_FREE, true
  return true
end

-- Grants what can be granted, first come first served.
local function advance()
  -- What is over does not come back when the clock is set back.
  if state.closed <= now then state.closed = 0 end
  if state.upgrader then
    if live_upgrader() then finish_upgrade() else state.upgrader = nil end
  end
  while state.waiting > 0 do
    local owner = call('ZRANGE', QUEUE, 0, 0)[1]
    if not owner then
      state.waiting = 0
      break
    end
    local found = call('HMGET', STATE, 'W' .. owner, 'A' .. owner)
    local waiter = found[1] and read_waiter(found[1])
    local alive_until, round
    if waiter then alive_until, round = sign_of_life(waiter, found[2]) end
    -- By a clock that was set back since: it is believed to live as if it had asked now, and no longer.
    if waiter and alive_until > now + PATIENCE then
      alive_until = now + PATIENCE
      call('HSET', STATE, 'A' .. owner, text(alive_until) .. ' ' .. round)
    end
    local dead = not waiter or alive_until <= now
    local too_much = waiter and waiter.weight > state.capacity
    if not dead and not too_much then
      if not admits(waiter.weight) then break end
      local before = state.free_until
      if left_free() then
        -- The first in the queue asks when it is over. It is told now to ask, and then how long to wait.
        if state.free_until ~= before then wakes[#wakes + 1] = { owner = owner, seat = waiter.seat, listens = waiter.listens } end
        break
      end
    end
    call('ZREM', QUEUE, owner)
    call('HDEL', STATE, 'W' .. owner, 'A' .. owner)
    state.waiting = state.waiting - 1
    if not dead then
      local wake = { owner = owner, seat = waiter.seat, listens = waiter.listens, round = round }
      -- After a cut of the capacity a waiter may want more than there is. It is woken to be told.
      if not too_much then wake.grant = grant(owner, waiter, false) end
      wakes[#wakes + 1] = wake
    end
  end
end

local function do_not_wake(owner)
  for i = #wakes, 1, -1 do
    if wakes[i].owner == owner then table.remove(wakes, i) end
  end
end

-- The time until something can change by the passing of time alone.
local function pause()
  local _, at = first_holder()
  at = at or now + DAY
  if stranger then at = math.min(at, stranger, now + STRANGER) end
  if state.closed > now then at = math.min(at, state.closed) end
  if state.free_until > now then at = math.min(at, state.free_until) end
  if state.upgrader then at = math.min(at, state.upgrade_until) end
  -- Whether the first still lives matters to the others only if there is something left for them.
  if state.waiting > 1 and state.used < state.capacity then
    local owner = call('ZRANGE', QUEUE, 0, 0)[1]
    local found = owner and call('HMGET', STATE, 'W' .. owner, 'A' .. owner)
    if found and found[1] then at = math.min(at, (sign_of_life(read_waiter(found[1]), found[2]))) end
  end
  return math.max(at - now, 0)
end

-- Writes the log of an election: a new leader, a new word of the same leader, or nobody.
local changed = false
local function note_change()
  if not state.changes then return end
  local owner = first_holder()
  local leader = owner and claim_of(owner) or { token = 0, pid = '0', host = '', label = '', value = '' }
  local before = call('LINDEX', LOG, -1)
  before = before and cmsgpack.unpack(before) or { token = 0, value = '' }
  if before.token == leader.token and (before.value == leader.value or leader.token == 0) then return end
  state.changes = state.changes + 1
  state.changed_at = now
  call('RPUSH', LOG, cmsgpack.pack({
    number = state.changes, token = leader.token, pid = leader.pid, host = leader.host, label = leader.label,
    value = leader.value,
  }))
  call('LTRIM', LOG, -LOG_LENGTH, -1)
  changed = true
end

-- The keys of a name last for as long as anything in them can matter, and some time more.
local function keep_until(latest)
  local wanted = math.max(latest + state.delay, state.closed, now + PATIENCE) + HOUR
  -- That a leader's time ran out is a change too, which somebody may want to hear of for a day.
  if state.changes then wanted = math.max(wanted, latest + DAY) end
  if state.capacity ~= state.declared then wanted = math.max(wanted, now + RESIZED) end
  if wanted > state.kept_until then
    -- In whole milliseconds.
    state.kept_until = math.ceil((wanted + HOUR) / 1000) * 1000
    for _, key in ipairs({ STATE, ENDS, QUEUE, LOG }) do
      call('PEXPIREAT', key, text(state.kept_until / 1000))
    end
  elseif claims_added then
    -- A set that was empty for a moment is a new key.
    call('PEXPIREAT', ENDS, text(state.kept_until / 1000))
  end
end

-- The claim of one who has all of a lock leaves the table.
local function fold()
  if sole or not shown or state.used ~= WHOLE or count_holders() ~= 1 then return end
  local owner, ends = first_holder()
  local claim = claim_of(owner)
  if claim.weight ~= WHOLE then return end
  sole = { owner = owner, claim = claim, ends = ends }
  call('HDEL', STATE, 'C' .. owner)
  call('DEL', ENDS)
end

-- Writes down at the holder's key what strangers see. Whether more than that must be kept, and the end of the last lease.
local function show()
  local latest = now
  if sole then
    local claim = sole.claim
    latest = sole.ends
    local nothing_else = state.capacity == WHOLE and state.declared == WHOLE and state.closed <= now and not state.upgrader
      and not state.changes
    -- What the holder's key can not say is not plain.
    local plain = nothing_else and claim.confirmed and claim.delay == 0 and claim.token > 0 and state.waiting == 0
    -- What is simple, join.lua and hand_over.lua do. That a claim which is not confirmed ends sooner than its beginning says, because the
    -- clock was set back, is not.
    local simple = nothing_else and state.delay == 0 and state.seen == 0 and (claim.confirmed or claim.since <= now)
    local before = kind
    kind = plain and ' ' or not simple and ':' or claim.confirmed and '+' or '?'
    if holder_stale or kind ~= before then
      -- A key that lives to the last millisecond of the lease, and not less.
      local left = math.ceil((latest - now) / 1000)
      -- Until somebody asks, this key alone keeps the name closed after an expiry.
      if not plain then left = left + math.ceil((GRACE + state.delay) / 1000) end
      call('SET', HOLDER, holder_text(kind, sole.owner, claim), 'PX', text(left))
    end
    state.holder = 'sole'
    return not plain, latest
  end
  if state.used > 0 then
    latest = tonumber(call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')[2])
    if shown and holder_stale then
      local left = math.ceil((latest - now) / 1000) + math.ceil((GRACE + state.delay) / 1000)
      call('SET', HOLDER, MARK .. ' shared', 'PX', text(left))
      state.holder = 'shared'
    end
  elseif shown and not stranger then
    if state.closed > now then
      local left = math.ceil((state.closed - now) / 1000)
      if state.waiting > 0 then left = left + GRACE / 1000 end
      call('SET', HOLDER, MARK .. ' closed', 'PX', text(left))
      state.holder = 'closed'
    elseif state.holder ~= '' then
      call('DEL', HOLDER)
      state.holder = ''
    end
  end
  return true, latest
end

-- Writes everything down and wakes whose turn it is. Nothing is kept for a name that nobody uses.
local function settle()
  local unused = state.used == 0 and state.waiting == 0 and state.closed <= now
    and state.capacity == state.declared
  local forgotten = state.changes == nil or state.changed_at + DAY <= now
  local kept, latest = false, now
  if unused and forgotten then
    if shown and state.holder ~= '' then call('DEL', HOLDER) end
  else
    if state.used == 0 then state.delay = 0 end
    fold()
    kept, latest = show()
  end
  local kept_before = state.stored and true or false
  if shown and kept ~= kept_before or last_changed and not (shown and kept) then
    local counter = last_token() - (shown and kept and BELOW or 0)
    if counter == 0 then call('DEL', TOKEN) else call('SET', TOKEN, text(counter), 'EX', DAY / 1000000) end
  end
  if kept then
    call('HSET', STATE, 'format', '1', 'declared', text(state.declared), 'capacity', text(state.capacity),
      'used', text(state.used), 'closed', text(state.closed), 'upgrader', state.upgrader or '',
      'upgrade_until', text(state.upgrade_until), 'arrivals', text(state.arrivals),
      'changes', state.changes and text(state.changes) or '', 'changed_at', text(state.changed_at), 'holder', state.holder,
      'ends', sole and text(sole.ends) or '0', 'confirmed', sole and sole.claim.confirmed and '1' or '0', 'delay', text(state.delay), 'last', shown and text(last_token()) or '',
      'at', in_use() and state.at > now and text(state.at) or moment)
    if strangers_changed then
      call('HSET', STATE, 'strangers', table.concat({ text(state.seen), text(state.free_at), text(state.free_until) }, ' '))
    end
    local before = state.kept_until
    keep_until(latest)
    if state.kept_until ~= before then call('HSET', STATE, 'kept_until', text(state.kept_until / 1000)) end
  elseif state.stored or claims_added then
    call('DEL', STATE, ENDS, QUEUE, LOG)
  end
  for _, wake in ipairs(wakes) do
    if wake.grant then
      tell_of_grant(wake.owner, wake.seat, wake.listens, text(wake.grant.token), wake.grant.tokens, wake.round)
    else
      tell(wake.seat, wake.listens, 'w ' .. wake.owner)
    end
  end
  if changed then call('PUBLISH', 'leasehold:changed:' .. STATE, '') end
end

local GRANTED, QUEUED, BUSY, REFUSED = 1, 2, 3, 4
local CAPACITY, WEIGHT, UPGRADING, NOT_HELD = 1, 2, 3, 4

local function granted(found)
  return { GRANTED, found.token, found.tokens }
end

-- The rules of a claim, as src/claim/state.rs has them, on what was read of one name.

-- A stranger's release is not told to us: waiters look this often.
local STRANGER = 50000
-- A name that always goes from one of ours to the next is never free when a stranger asks. So where
-- strangers were seen, or are expected, it is left free for LEFT_FREE now and then: after about a
-- thirtieth of the time since they were seen, within these limits.
local LEFT_FREE = 50000
local SOONEST, LATEST = 400000, 30000000

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

-- Cuts every end to what it would be if it had been written now: a later one was written before the
-- clock was set back. An owner counts its own deadline from before it asked, so a lease that is
-- counted from now ends no earlier than the owner expects.
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

-- Counts the owner's lease from now; its claim, if it has one.
local function extend(owner, lease)
  local claim = claim_of(owner)
  if not claim then return nil end
  if (lease and lease ~= claim.lease) or not claim.confirmed then
    claim.lease, claim.confirmed = lease or claim.lease, true
    store_claim(owner, claim)
  end
  ends_at(owner, now + claim.lease)
  holder_stale = true
  return claim
end

local function admits(weight)
  return not stranger and state.closed <= now and not state.upgrader
    and state.used + weight <= state.capacity
end

local function agrees(capacity)
  return capacity == state.declared or capacity == state.capacity
end

local function in_use()
  return state.used > 0 or state.waiting > 0
end

-- Gives a waiter its claim.
local function grant(owner, waiter, confirmed)
  local claim = {
    weight = waiter.weight, token = math.max(last_token() + 1, now), tokens = waiter.tokens,
    lease = waiter.lease, delay = waiter.delay, since = now, confirmed = confirmed,
    seat = waiter.seat, pid = waiter.pid, host = waiter.host, label = waiter.label,
    value = waiter.value,
  }
  set_last_token(claim.token + claim.tokens - 1)
  add_claim(owner, claim, now + believed(claim))
  return claim
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

-- Whether the name, which could be given to a waiter, is left free for strangers instead.
local function left_free()
  if state.free_until > now then return true end
  if state.seen == 0 or state.used > 0 then return false end
  local after = math.min(math.max((now - state.seen) / 32, SOONEST), LATEST)
  -- And up to twice that: a stranger that looks at regular times must not always be late.
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
    -- By a clock that was set back since: it is believed to live as if it had asked now.
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
        -- The first in the queue is woken to ask, and is then told how long to wait.
        if state.free_until ~= before then
          wakes[#wakes + 1] = { owner = owner, seat = waiter.seat, listens = waiter.listens }
        end
        break
      end
    end
    call('ZREM', QUEUE, owner)
    call('HDEL', STATE, 'W' .. owner, 'A' .. owner)
    state.waiting = state.waiting - 1
    if not dead then
      local wake = { owner = owner, seat = waiter.seat, listens = waiter.listens, round = round }
      -- After a cut of the capacity a waiter may want more than there is: it is woken to be told.
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
    if found and found[1] then
      at = math.min(at, (sign_of_life(read_waiter(found[1]), found[2])))
    end
  end
  return math.max(at - now, 0)
end

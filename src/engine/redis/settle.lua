-- The end of every script by the rules: `settle` writes down what was found and done, and tells
-- those whose turn it is.

-- A name whose capacity was changed is remembered for so long after its last use.
local RESIZED = 30 * DAY
local LOG_LENGTH = 32

-- Writes the log of an election: a new leader, a new word of the same leader, or nobody.
local changed = false
local function note_change()
  if not state.changes then return end
  local owner = first_holder()
  local leader = owner and claim_of(owner)
    or { token = 0, pid = '0', host = '', label = '', value = '' }
  local before = call('LINDEX', LOG, -1)
  before = before and cmsgpack.unpack(before) or { token = 0, value = '' }
  if before.token == leader.token and (before.value == leader.value or leader.token == 0) then
    return
  end
  state.changes = state.changes + 1
  state.changed_at = now
  call('RPUSH', LOG, cmsgpack.pack({
    number = state.changes, token = leader.token, pid = leader.pid, host = leader.host,
    label = leader.label, value = leader.value,
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

-- Writes the holder's key, which strangers see. Answers whether more than that must be kept, and
-- the end of the last lease.
local function show()
  local latest = now
  if sole then
    local claim = sole.claim
    latest = sole.ends
    local nothing_else = state.capacity == WHOLE and state.declared == WHOLE and state.closed <= now
      and not state.upgrader and not state.changes
    -- Plain: the holder's key can say all of it.
    local plain = nothing_else and claim.confirmed and claim.delay == 0 and state.waiting == 0
    -- Simple: join.lua and hand_over.lua can do it. A claim that is not confirmed, and ends sooner
    -- than its beginning says because the clock was set back, is not.
    local simple = nothing_else and state.delay == 0 and state.seen == 0
      and (claim.confirmed or sole.ends == claim.since + believed(claim))
    local before = kind
    kind = plain and ' ' or not simple and ':' or claim.confirmed and '+' or '?'
    if holder_stale or kind ~= before then
      -- A key that lives to the last millisecond of the lease, and not less.
      local left = math.ceil((latest - now) / 1000)
      -- Until somebody asks, this key alone keeps the name closed after an expiry.
      if not plain then left = left + math.ceil((GRACE + state.delay) / 1000) end
      local who = claim.seat .. ' ' .. claim.pid .. ' ' .. claim.host .. ' ' .. claim.label
      call('SET', HOLDER, holder_text(kind, sole.owner, claim.tokens, text(claim.token),
        text(claim.lease), text(claim.delay), text(claim.since), who), 'PX', text(left))
    end
    state.holder = 'sole'
    return not plain, latest
  end
  if state.used > 0 then
    latest = tonumber(call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')[2])
    if shown and holder_stale then
      local left = math.ceil((latest - now) / 1000) + math.ceil((GRACE + state.delay) / 1000)
      call('SET', HOLDER, SHARED_MARK, 'PX', text(left))
      state.holder = 'shared'
    end
  elseif shown and not stranger then
    if state.closed > now then
      local left = math.ceil((state.closed - now) / 1000)
      if state.waiting > 0 then left = left + GRACE / 1000 end
      call('SET', HOLDER, CLOSED_MARK, 'PX', text(left))
      state.holder = 'closed'
    elseif state.holder ~= '' then
      call('DEL', HOLDER)
      state.holder = ''
    end
  end
  return true, latest
end

-- Writes everything down and wakes whose turn it is. Nothing is kept for a name that is not used.
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
    if counter == 0 then
      call('DEL', TOKEN)
    else
      call('SET', TOKEN, text(counter), 'EX', DAY / 1000000)
    end
  end
  if kept then
    call('HSET', STATE, 'format', '1', 'declared', text(state.declared),
      'capacity', text(state.capacity), 'used', text(state.used), 'closed', text(state.closed),
      'upgrader', state.upgrader or '', 'upgrade_until', text(state.upgrade_until),
      'arrivals', text(state.arrivals), 'changes', state.changes and text(state.changes) or '',
      'changed_at', text(state.changed_at), 'holder', state.holder,
      'ends', sole and text(sole.ends) or '0',
      'confirmed', sole and sole.claim.confirmed and '1' or '0', 'delay', text(state.delay),
      'last', shown and text(last_token()) or '',
      'at', in_use() and state.at > now and text(state.at) or moment)
    if strangers_changed then
      call('HSET', STATE, 'strangers',
        text(state.seen) .. ' ' .. text(state.free_at) .. ' ' .. text(state.free_until))
    end
    local before = state.kept_until
    keep_until(latest)
    if state.kept_until ~= before then
      call('HSET', STATE, 'kept_until', text(state.kept_until / 1000))
    end
  elseif state.stored or claims_added then
    call('DEL', STATE, ENDS, QUEUE, LOG)
  end
  for _, wake in ipairs(wakes) do
    if wake.grant then
      local token, tokens = text(wake.grant.token), wake.grant.tokens
      tell_of_grant(wake.owner, wake.seat, wake.listens, token, tokens, wake.round)
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

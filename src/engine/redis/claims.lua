-- The claims of a name, and what its holder's key says of them.

-- The claim of one that holds all of a lock, with its owner and end. It stands at the holder's key
-- and nowhere else. All other claims are in a table in the state.
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

-- Until when a stranger holds the name.
local stranger
local strangers_changed
local function expect_strangers()
  state.seen, strangers_changed = now, true
  if state.free_at == 0 then state.free_at = now end
end

-- The letter at the holder's key. If the key is not what we left there, somebody took the name
-- away: what strangers see decides.
local kind
if shown then
  local held = call('GET', HOLDER)
  local version = other_version(held)
  if version then return redis.error_reply('LEASEHOLD format ' .. version) end
  local ours
  kind, ours = holder_word(held)
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
    local owner, claim = read_holder(held)
    if not owner then
      return redis.error_reply('LEASEHOLD format of the holder')
    end
    claim.confirmed = kind == '+' or state.confirmed
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
      add_claim(owner, claim, left < 0 and now + claim.lease or now + left * 1000)
      state.holder = 'sole'
    end
  elseif ours and state.holder == '' then
    -- A mark that nobody stands behind any more.
    state.holder, holder_stale = ours, true
  end
end

-- A claim, for those who look.
local function row_of(owner, claim, ends)
  return { owner, claim.seat, text(claim.weight), text(claim.token), text(claim.tokens),
    text(claim.lease), text(ends), text(claim.delay), text(claim.since),
    claim.confirmed and '1' or '0', { claim.pid, claim.host, claim.label }, claim.value }
end

-- Changes a claim that is held. ARGV: family, owner, what; then weight and token, or a value.
local owner, what = ARGV[2], ARGV[3]

local function downgrade(weight, token)
  expire()
  local claim = claim_of(owner)
  if not claim or token < claim.token or token > claim.token + claim.tokens - 1 then
    advance()
    return { REFUSED, NOT_HELD }
  end
  local before = claim.weight
  claim.weight = math.min(weight, before)
  store_claim(owner, claim)
  state.used = state.used - before + claim.weight
  holder_stale = true
  advance()
  return granted(claim)
end

-- Turns a reader into the writer, under a new token, once it is alone. It goes before the queue,
-- because the queue waits for it. A second one is refused: the two would wait for each other.
local function upgrade(wait)
  expire()
  believe_until()
  if not extend(owner, nil) then
    advance()
    return { REFUSED, NOT_HELD }
  end
  if state.upgrader and state.upgrader ~= owner and live_upgrader() then
    advance()
    return { REFUSED, UPGRADING }
  end
  state.upgrader, state.upgrade_until = owner, now + PATIENCE
  advance()
  do_not_wake(owner)
  local claim = claim_of(owner)
  if claim and claim.weight == state.capacity then
    state.upgrader = nil
    return granted(claim)
  end
  if wait then return { QUEUED, pause() } end
  state.upgrader = nil
  advance()
  return { BUSY, pause() }
end

local function put(value)
  expire()
  local claim = claim_of(owner)
  if not claim then return { REFUSED, NOT_HELD } end
  claim.value = value
  store_claim(owner, claim)
  note_change()
  return granted(claim)
end

local answer
if what == 'downgrade' then
  answer = downgrade(tonumber(ARGV[4]), tonumber(ARGV[5]))
elseif what == 'value' then
  answer = put(ARGV[4])
else
  answer = upgrade(what == 'upgrade')
end
settle()
return answer

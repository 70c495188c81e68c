-- What the scripts that change a name have in common.

local HOLDER, TOKEN, STATE, ENDS, QUEUE, LOG = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local MARK = 'leasehold/1 '
local WHOLE = 4294967295
local HOUR = 3600000000
-- How long a waiter is believed to live after it asked, and how long a grant waits for its owner to confirm it.
local PATIENCE = 5000000
local CONFIRM = 3000000
-- While others wait, the holder's key outlives the lease by this much, so that they come before a newcomer.
local GRACE = 10000000

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function text(number)
  return string.format('%.0f', number)
end

-- What stands at the holder's key for a claim. Times and tokens have more digits than Lua writes by itself.
local function holder_text(owner, claim)
  return MARK .. owner .. ' ' .. claim.tokens .. ' ' .. text(claim.token) .. ' ' .. claim.lease .. ' ' .. claim.delay .. ' ' ..
    text(claim.since) .. ' ' .. claim.seat .. ' ' .. claim.pid .. ' ' .. claim.host .. ' ' .. claim.label
end

-- The claim that a waiter gets.
local function claim_for(waiter, token, confirmed)
  return {
    weight = waiter.weight, token = token, tokens = waiter.tokens, lease = waiter.lease, delay = waiter.delay,
    since = now, confirmed = confirmed, seat = waiter.seat, pid = waiter.pid, host = waiter.host,
    label = waiter.label, value = waiter.value,
  }
end

-- Tells a client something: one that `listens` where the name is, there; if it does not hear, or has not said so, by the channel that
-- goes to every member of a cluster.
local function tell(seat, listens, message)
  local channel = 'leasehold:seat:' .. seat
  local heard = listens == 's' and redis.pcall('SPUBLISH', channel .. ':' .. STATE, message)
  if type(heard) == 'number' and heard > 0 then return end
  call('PUBLISH', channel, message)
end

local function tell_of_grant(owner, seat, listens, grant, round)
  tell(seat, listens, 'g ' .. owner .. ' ' .. text(grant.token) .. ' ' .. grant.tokens .. ' ' .. round)
end

-- Takes free locks. KEYS: for each its holder, token and state. ARGV: not after; since; then for
-- each lock the holder's text before the token and after it, and the lease in ms. Answers for each
-- the token, or 0 if the rules must decide. Answers nothing if the request came too late.

-- The askers have gone: whatever they would get, nobody would hold.
if now > tonumber(ARGV[1]) then return {} end

-- A counter below this is not good: it was gone and counts from 1, or it is from before the client
-- connected (`since`) and may have missed tokens in a fail-over, or its lifetime was not refreshed
-- for half a day. One above the clock must not end before the clock has passed it.
local good = math.max(tonumber(ARGV[2]), now - 43200000000, 1099511627776)

-- Raises a counter to the time, with a day to live. The token, or 0 if there is a state.
local function raise(counter, number, state)
  local last = redis.pcall('HGET', state, 'last')
  local token = math.max(number, now)
  -- While there is a state, the counter is below zero: see prelude.lua.
  local value = type(last) == 'string' and last - 9007199254740992 or token
  call('SET', counter, text(value), 'EX', 86400)
  return last and 0 or token
end

local answers = {}
for i = 1, #KEYS / 3 do
  local counter = KEYS[i * 3 - 1]
  local token = redis.pcall('INCR', counter)
  if type(token) ~= 'number' then
    -- A key that is in use for something else costs no other name its lock: the rules refuse it.
    local spoilt = string.find(token.err, 'WRONGTYPE', 1, true)
      or string.find(token.err, 'not an integer', 1, true)
    if not spoilt then return token end
    token = 0
  elseif token >= 0 and (token < good or token > now) then
    token = raise(counter, token, KEYS[i * 3])
  end
  local taken = token > 0 and call('SET', KEYS[i * 3 - 2],
    ARGV[i * 3] .. text(token) .. ARGV[i * 3 + 1], 'NX', 'PX', ARGV[i * 3 + 2])
  answers[i] = taken and token or 0
end
return answers

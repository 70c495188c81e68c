-- Gives back a claim or a place in the queue, by the rules. ARGV: family, owner, highest token
-- used, and for locks how the text of a holder starts that is alone.
local owner, used = ARGV[2], tonumber(ARGV[3])
local CLAIM, PLACE, NOTHING = 1, 2, 0

expire()
local released = NOTHING
local claim = remove_claim(owner)
if claim then
  released = CLAIM
  -- Tokens that were reserved and not used are free again, unless others were given since.
  local block_end = claim.token + claim.tokens - 1
  if claim.tokens > 1 and last_token() == block_end then
    set_last_token(math.min(math.max(used, claim.token), block_end))
  end
elseif state.waiting > 0 and call('ZREM', QUEUE, owner) == 1 then
  call('HDEL', STATE, 'W' .. owner, 'A' .. owner)
  state.waiting = state.waiting - 1
  holder_stale = true
  released = PLACE
end
advance()
note_change()
settle()
return released

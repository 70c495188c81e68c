-- Takes a name away from all who hold it, and says who they were. ARGV: family.
expire()
local broken = {}
for _, owner in ipairs(call('ZRANGE', ENDS, 0, -1)) do
  local expires = call('ZSCORE', ENDS, owner)
  local claim = remove_claim(owner)
  broken[#broken + 1] = { owner, claim.seat, text(claim.weight), text(claim.token), text(claim.tokens), text(claim.lease),
    expires, text(claim.delay), text(claim.since), claim.confirmed and '1' or '0', claim.pid, claim.host, claim.label,
    claim.value }
  tell(claim.seat, '', 'b ' .. owner)
end
state.closed, state.upgrader = 0, nil
if stranger then
  -- The operator's word goes for strangers too.
  broken[#broken + 1] = { call('GET', HOLDER) }
  call('DEL', HOLDER)
  stranger = nil
end
advance()
note_change()
settle()
return { text(now), broken }

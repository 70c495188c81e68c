-- A claim, for those who look.
local function row_of(owner, claim, ends)
  return { owner, claim.seat, text(claim.weight), text(claim.token), text(claim.tokens), text(claim.lease), text(ends),
    text(claim.delay), text(claim.since), claim.confirmed and '1' or '0', claim.pid, claim.host, claim.label, claim.value }
end

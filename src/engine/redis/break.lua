-- Takes a name away from all who hold it, and says who they were. ARGV: family.
expire()
local broken, taken = {}, ''
local all = holders()
for i = 1, #all, 2 do
  local claim = remove_claim(all[i])
  broken[#broken + 1] = row_of(all[i], claim, all[i + 1])
  tell(claim.seat, '', 'b ' .. all[i])
end
state.closed, state.upgrader = 0, nil
if stranger then
  -- The operator's word goes for strangers too.
  taken = call('GET', HOLDER)
  call('DEL', HOLDER)
  stranger = nil
end
advance()
note_change()
settle()
return { text(now), broken, taken }

-- Takes the name away from all who hold it. Answers the time, and the claims.
for _, reader in ipairs(call('ZRANGE', ENDS, 0, -1)) do forget_reader(reader) end
if held then
  call('DEL', HOLDER)
  -- Nobody who held it takes it again with a renewal.
  local last = counter()
  if last > 0 then set_counter(last + 1, '-') end
end
for _, row in ipairs(claims) do
  local was, seat = string.match(row[1], '^redlock/1 (%x+) %d+ %d+ %d+ %d+ %d+ (%d+) ')
  if was then call('PUBLISH', 'leasehold:seat:' .. seat, 'b ' .. was) end
end
wake(false)
return { text(now), claims }

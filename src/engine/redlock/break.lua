-- Takes the name away from all who hold it. Answers the time, and for each what was known of it: as look.lua has it.
call('HDEL', STATE, '')
expire_readers()
local broken = {}
if kind == 'owner' or kind == 'stranger' then
  broken[1] = { held, text(call('PTTL', HOLDER)) }
elseif kind == 'shared' then
  local ends = call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local claim = call('HGET', STATE, 'C' .. ends[i])
    if claim then broken[#broken + 1] = { MARK .. claim, text((ends[i + 1] - now) / 1000) } end
    forget_reader(ends[i])
  end
end
if held then
  call('DEL', HOLDER)
  -- Nobody who held it takes it again with a renewal.
  local last = counter()
  if last > 0 then set_counter(last + 1, '-') end
end
for _, row in ipairs(broken) do
  local was, seat = string.match(row[1], '^redlock/1 (%x+) %d+ %d+ %d+ %d+ %d+ (%d+) ')
  if was then call('PUBLISH', 'leasehold:seat:' .. seat, 'b ' .. was) end
end
wake(false)
return { text(now), broken }

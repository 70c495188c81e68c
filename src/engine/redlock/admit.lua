-- Lets a server vote. KEYS: member, top, floor, missed. ARGV: the mark that was seen, run, floor,
-- not after. Answers 1, or 0 if the mark is another one by now.
local mark = call('GET', KEYS[1]) or ''
if mark == ARGV[2] then return 1 end
if mark ~= ARGV[1] or now > tonumber(ARGV[4]) then return 0 end
for _, key in ipairs({ KEYS[2], KEYS[3] }) do
  if tonumber(call('GET', key) or 0) < tonumber(ARGV[3]) then call('SET', key, ARGV[3]) end
end
call('SET', KEYS[1], ARGV[2])
call('DEL', KEYS[4])
return 1

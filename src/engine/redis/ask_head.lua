-- The asker has gone by now: whatever it would get, nobody would hold.
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then return { 5, now } end
-- Who asked before stands in the queue already and takes no more of a memory that is full: see full_memory.lua.
if not string.find(ARGV[3], '^%a+ %d+ 1 ') then call('HDEL', STATE, '') end

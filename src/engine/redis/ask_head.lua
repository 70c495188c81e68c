-- The asker has gone by now: whatever it would get, nobody would hold.
if ARGV[5] ~= '0' and now > tonumber(ARGV[5]) then return { 5, now } end
-- Who asked before stands in the queue already and takes no more of a memory that is full: see full_memory.lua.
if string.sub(ARGV[7], 1, 2) ~= '1 ' then call('HDEL', STATE, '') end

-- The asker has gone by now: whatever it would get, nobody would hold.
if ARGV[4] ~= '0' and now > tonumber(ARGV[4]) then return { 5, now } end

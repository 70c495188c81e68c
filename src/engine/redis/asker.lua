-- Who asked before stands in the queue already and takes no more of a memory that is full: see full_memory.lua.
if not string.find(ARGV[3], '^%a+ %d+ 1 ') then call('HDEL', STATE, '') end
-- Whoever asks says less: see ask.lua.
local family, asker, known_token = string.match(ARGV[3], '^%a+'), ARGV[1], ARGV[5] or '0'

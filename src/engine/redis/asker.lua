-- Whoever asks says less: see ask.lua.
local family, asker, known_token = string.match(ARGV[3], '^%a+'), ARGV[1], ARGV[5] or '0'

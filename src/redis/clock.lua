-- The server's time in microseconds, and whole numbers as texts.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(number) return string.format('%d', number) end


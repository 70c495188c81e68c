-- Reads a cell, and replaces it if it is still at the version that was read. KEYS: the cell. ARGV: `read`; or `swap`,
-- version, how long it lives in ms (0 deletes it), bytes.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(number) return string.format('%.0f', number) end
local found = call('HMGET', KEYS[1], 'version', 'bytes')
local version = found[1] or '0'
if ARGV[1] == 'read' or version ~= ARGV[2] then
  return { 0, version, found[2] or '', text(now) }
end
if ARGV[3] == '0' then
  call('DEL', KEYS[1])
  version = '0'
else
  version = text(math.max(version + 1, now))
  call('HSET', KEYS[1], 'version', version, 'bytes', ARGV[4])
  call('PEXPIRE', KEYS[1], ARGV[3])
end
call('PUBLISH', 'leasehold:changed:' .. KEYS[1], '')
return { 1, version, '', text(now) }

-- The asker has gone by now: whatever it would get, nobody would hold.
if ARGV[16] ~= '0' then
  local clock = redis.call('TIME')
  if clock[1] * 1000000 + clock[2] > tonumber(ARGV[16]) then
    return { 5, clock[1] * 1000000 + clock[2] }
  end
end
-- Who asked before stands in the queue already and takes no more of a memory that is full: see full_memory.lua.
if tonumber(ARGV[9]) > 1 then redis.call('HDEL', KEYS[3], '') end

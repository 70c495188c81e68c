-- The asker has gone by now: whatever it would get, nobody would hold.
if ARGV[16] ~= '0' then
  local clock = redis.call('TIME')
  if clock[1] * 1000000 + clock[2] > tonumber(ARGV[16]) then
    return { 5, clock[1] * 1000000 + clock[2] }
  end
end

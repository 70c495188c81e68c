-- What is known of a name. ARGV: family, last change seen, waiters wanted (0 or 1).
--
-- The usual case: nobody waits, and all that is known stands at the holder's key. Nothing is changed.
if redis.call('EXISTS', KEYS[3]) == 0 then
  local clock = redis.call('TIME')
  local held = ARGV[1] == 'lock' and redis.call('GET', KEYS[1]) or ''
  local left = held ~= '' and redis.call('PTTL', KEYS[1]) or 0
  -- A mark that nobody stands behind any more.
  if held == 'leasehold/1 shared' or held == 'leasehold/1 closed' then held = '' end
  local lease = string.match(held, '^leasehold/1 %x+ %d+ %d+ (%d+) ')
  -- What ends later than its lease was taken before the clock was set back, and is cut by the rules.
  if not lease or left <= math.ceil(lease / 1000) then return { string.format('%.0f', clock[1] * 1000000 + clock[2]), held, string.format('%.0f', left), '0', '0', '0', '0', {}, {}, {} } end
end

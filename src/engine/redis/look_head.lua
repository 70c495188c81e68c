-- What is known of a name. ARGV: family, last change seen, waiters wanted (0 or 1).
--
-- The usual case: nobody waits, and all that is known stands at the holder's key. Nothing is changed.
if redis.call('EXISTS', KEYS[3]) == 0 then
  local clock = redis.call('TIME')
  local held = ARGV[1] == 'lock' and redis.call('GET', KEYS[1]) or ''
  local left = held ~= '' and redis.call('PTTL', KEYS[1]) or 0
  -- A mark that nobody stands behind any more.
  if held == 'leasehold/1 shared' or held == 'leasehold/1 closed' then held = '' end
  return { string.format('%.0f', clock[1] * 1000000 + clock[2]), held, string.format('%.0f', left), '0', '0', '0', '0', {}, {}, {} }
end

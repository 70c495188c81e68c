-- The usual case of a look: nobody waits, and all that is known stands at the holder's key. Nothing
-- is changed. ARGV as in look.lua.
if call('EXISTS', STATE) == 0 then
  local held = ARGV[1] == 'lock' and call('GET', HOLDER) or ''
  local left = held ~= '' and call('PTTL', HOLDER) or 0
  -- A mark that nobody stands behind any more.
  if held == SHARED_MARK or held == CLOSED_MARK then held = '' end
  local owner, claim = read_holder(held)
  -- One that ends later than its lease was taken before the clock was set back: the rules cut it.
  if holder_word(held) ~= ' ' or not owner or left <= math.ceil(claim.lease / 1000) then
    return { text(now), held, text(left), '0', '0', '0', '0', {}, {}, {} }
  end
end

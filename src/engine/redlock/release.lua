-- Gives back a claim, or a place among those who wait. ARGV: owner, stamp, `all` or `claim`.
-- With `claim` only what was asked for until the stamp is given back: the owner goes on asking.
-- Answers 1 for a claim, 2 for a place, 0 for nothing.

-- Gives back, and must be done with a full memory too: see ../redis/full_memory.lua.
call('HDEL', STATE, '')
local whole = ARGV[3] == 'all'
expire_readers()
local mine = is_mine() and my_stamp() <= stamp
local by = call('HGET', STATE, 'by')
local committed = false
if mine then
  local claim = kind == 'owner' and held or MARK .. (call('HGET', STATE, 'C' .. owner) or '')
  committed = string.match(claim, '^%S+ %x+ %d+ (%d+) ') ~= '0'
  if kind == 'owner' then
    call('DEL', HOLDER)
    call('HDEL', STATE, 'X')
  else
    forget_reader(owner)
    if call('ZCARD', ENDS) == 0 then call('DEL', HOLDER) else show_readers() end
  end
end
if committed and by == owner .. ':' .. text(counter()) then
  -- A renewal that comes late does not take it again. A server that missed the token would not know: it remembers the release.
  call('HSET', STATE, 'by', '-')
else
  -- What this undoes may still come.
  local gone = math.max(tonumber(call('GET', GONE) or 0), stamp)
  call('SET', GONE, text(gone), 'PX', REMEMBERED)
end
local place = whole and leave_queue(owner)
-- Somebody who only tried wakes nobody: two who try would wake each other for ever.
if whole and (mine or place) then wake(false) end
return mine and 1 or place and 2 or 0

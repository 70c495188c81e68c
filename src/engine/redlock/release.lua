-- Gives back a claim, or a place among those who wait. ARGV: owner, stamp, `all` or `claim`.
-- With `claim` only what was asked for until the stamp is given back: the owner goes on asking.
-- Answers 1 for a claim, 2 for a place, 0 for nothing.
local whole = ARGV[3] == 'all'
expire_readers()
local mine, committed = is_mine(), false
if mine then
  local _, token, since = my_claim()
  mine, committed = since <= stamp, token ~= '0'
end
if mine then
  if kind == 'owner' then
    call('DEL', HOLDER)
  else
    forget_reader(owner)
    if call('ZCARD', ENDS) == 0 then call('DEL', HOLDER) else show_readers() end
  end
end
local number, by = counter()
if mine and committed and by == owner then
  -- A renewal that comes late does not take it again. A server that missed the token would not know
  -- that: it remembers the release.
  call('SET', TOKEN, text(number) .. ' -', 'KEEPTTL')
else
  -- What this undoes may still come.
  local gone = math.max(tonumber(call('GET', GONE) or 0), stamp)
  call('SET', GONE, text(gone), 'PX', REMEMBERED)
end
local place = whole and leave_queue(owner)
-- Somebody who only tried wakes nobody: two who try would wake each other for ever.
if whole and (mine or place) then wake(false) end
return mine and 1 or place and 2 or 0

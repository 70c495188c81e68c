-- Commits a token. ARGV: owner, stamp, first token, last token, run.
-- Answers { 'accepted' }, { 'above', counter }, { 'not mine' } or { 'quarantine' }.
local first, final = tonumber(ARGV[3]), tonumber(ARGV[4])
if call('GET', MEMBER) ~= ARGV[5] then return { 'quarantine' } end
expire_readers()
if not is_mine() then return { 'not mine' } end

local claim = held
if kind == 'shared' then claim = MARK .. (call('HGET', STATE, 'C' .. owner) or '') end
local head, token, rest = string.match(claim, '^(%S+ %x+ )%d+ (%d+)( .*)$')
if not head then return { 'not mine' } end
-- Said twice.
if token == text(first) then return { 'accepted' } end

local last = counter()
local by = call('HGET', STATE, 'by')
if last >= first and not (last == first and by == owner .. ':' .. text(first)) then return { 'above', text(last) } end
set_counter(final, owner)
claim = head .. text(final - first + 1) .. ' ' .. text(first) .. rest
if kind == 'shared' then
  call('HSET', STATE, 'C' .. owner, string.sub(claim, #MARK + 1))
else
  call('SET', HOLDER, claim, 'KEEPTTL')
end
leave_queue(owner)
-- Those who can share come in together.
if kind == 'shared' then wake(true) end
return { 'accepted' }

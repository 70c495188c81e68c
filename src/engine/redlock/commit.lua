-- Commits a token. ARGV: owner, stamp, first token, last token, run.
-- Answers { 'accepted' }, { 'above', counter }, { 'not mine' } or { 'quarantine' }.
local first, final = tonumber(ARGV[3]), tonumber(ARGV[4])
if call('GET', MEMBER) ~= ARGV[5] then return { 'quarantine' } end
expire_readers()
if not is_mine() then return { 'not mine' } end

local claim, token = my_claim()
if not token then return { 'not mine' } end
-- Proposed twice.
if token == text(first) then return { 'accepted' } end

local last, by = counter()
if last >= first and not (last == first and by == owner) then return { 'above', text(last) } end
set_counter(final, owner)
local tokens = text(final - first + 1)
claim = string.gsub(claim, '^(%S+ %x+ )%d+ %d+', '%1' .. tokens .. ' ' .. text(first), 1)
if kind == 'shared' then
  call('HSET', STATE, 'C' .. owner, string.sub(claim, #MARK + 1))
else
  call('SET', HOLDER, claim, 'KEEPTTL')
end
leave_queue(owner)
-- Those who can share come in together.
if kind == 'shared' then wake(true) end
return { 'accepted' }

-- Turns a writer into a reader. ARGV: owner, stamp, token. Answers 1, or 0 if the writer is not
-- there.
if kind == 'shared' then return is_mine() and 1 or 0 end
if not is_mine() then return 0 end
local token = string.match(held, '^%S+ %x+ %d+ (%d+) ')
if token ~= ARGV[3] then return 0 end
local left = call('PTTL', HOLDER)
call('HSET', STATE, 'C' .. owner, string.sub(held, #MARK + 1))
call('ZADD', ENDS, text(now + left * 1000), owner)
keep_readers()
show_readers()
wake(true)
return 1

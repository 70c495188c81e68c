-- Writes a token down, for those who look. KEYS: holder. ARGV: owner, token.
local owner, token = ARGV[1], ARGV[2]
-- Whatever somebody has put there instead is theirs.
local held = redis.pcall('GET', KEYS[1])
local before, after = string.match(type(held) == 'string' and held or '', '^(leasehold/1[ +?:]%x+ 1 )0( .*)$')
if before and string.sub(before, 13, 44) == owner then
  redis.call('SET', KEYS[1], before .. token .. after, 'KEEPTTL')
end
return 0

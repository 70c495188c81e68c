-- The claims that are here: the text of each, and what is left of it in ms.
expire_readers()
local claims = {}
if kind == 'owner' or kind == 'stranger' then
  claims[1] = { held, text(call('PTTL', HOLDER)) }
elseif kind == 'shared' then
  local ends = call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local claim = call('HGET', STATE, 'C' .. ends[i])
    if claim then claims[#claims + 1] = { MARK .. claim, text((ends[i + 1] - now) / 1000) } end
  end
end


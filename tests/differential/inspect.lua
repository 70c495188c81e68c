-- What stands in the keys of some names, and what is wrong with it, without changing anything. KEYS: six for each name.
local call = redis.call
local answer = {}
for i = 1, #KEYS, 6 do
  local holder, token, state, ends, queue, log = unpack(KEYS, i, i + 5)
  local wrong = {}
  local function expect(so, what) if not so then wrong[#wrong + 1] = what end end

  local stored = call('EXISTS', state) == 1
  local life = call('PTTL', state)
  for at = i, i + 5 do
    expect(call('PTTL', KEYS[at]) ~= -1, KEYS[at] .. ' is kept for ever')
  end
  for _, part in ipairs({ ends, queue, log }) do
    local left = call('PTTL', part)
    expect(stored or left == -2, part .. ' is left behind')
    expect(left == -2 or not stored or left >= life, part .. ' ends before the rest')
  end

  local text = call('GET', holder)
  local unnoted = text and string.match(text, '^leasehold/1 %x+ 1 0 ') and 1 or 0
  local used, claims, waiters, alive = 0, 0, 0, 0
  local fields = call('HGETALL', state)
  local said = {}
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    local kind, owner = string.match(field, '^([CWA])(%x+)$')
    if kind == 'C' then
      local claim = cmsgpack.unpack(value)
      used, claims = used + claim.weight, claims + 1
      if claim.token == 0 then unnoted = 1 end
      expect(call('ZSCORE', ends, owner), 'a claim without an end')
    elseif kind == 'W' then
      waiters = waiters + 1
      expect(call('ZSCORE', queue, owner), 'a waiter without a place')
    elseif kind == 'A' then
      alive = alive + 1
    else
      said[field] = value
    end
  end
  if stored then
    expect(tonumber(said.used) == used, 'used is ' .. said.used .. ', the claims weigh ' .. used)
    expect(call('ZCARD', ends) == claims, 'ends without claims')
    expect(tonumber(said.waiting) == waiters and call('ZCARD', queue) == waiters and alive == waiters,
      'waiting is ' .. said.waiting .. ', there are ' .. waiters .. ' and signs of life of ' .. alive)
  end
  answer[#answer + 1] = { call('GET', token) or '', text and 1 or 0, stored and 1 or 0, call('PTTL', holder), unnoted,
    table.concat(wrong, '; ') }
end
return answer

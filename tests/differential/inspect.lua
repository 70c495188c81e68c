-- What stands in the keys of some names, and what is wrong with it, without changing anything.
-- KEYS: six for each name.
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
  local kind, _, tokens, noted = string.match(text or '', '^leasehold/1(.)(%S+) ?(%d*) ?(%d*)')
  expect(noted ~= '0', 'a holder without a token')
  local used, claims, waiters, alive = 0, 0, 0, 0
  local fields = call('HGETALL', state)
  local said = {}
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    local kind, owner = string.match(field, '^([CWA])(%x+)$')
    if kind == 'C' then
      local claim = cmsgpack.unpack(value)
      used, claims = used + claim.weight, claims + 1
      expect(claim.token > 0, 'a claim in the table without a token')
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
  local counter = call('GET', token)
  local below = counter and tonumber(counter) < 0
  if below then
    counter = string.format('%.0f', counter + 9007199254740992)
  elseif string.find(state, ':lock:', 1, true) then
    expect(not stored or not counter, 'a counter above zero with a state')
  end
  if stored and string.find(state, ':lock:', 1, true) then
    counter = said.last
  end
  if stored and said.holder == 'sole' then
    used = used + 4294967295
    expect(claims == 0, 'a sole claim and a table')
    expect(not text or kind ~= ' ', 'the holder says that it is all')
  end
  if stored then
    expect(not text or (said.holder == 'sole') == (tokens ~= ''), 'the holder is ' .. (text or '') .. ', not ' .. said.holder)
    expect(tonumber(said.used) == used, 'used is ' .. said.used .. ', the claims weigh ' .. used)
    expect(call('ZCARD', ends) == claims, 'ends without claims')
    local waiting = call('ZCARD', queue)
    expect(waiting == waiters and alive <= waiters,
      waiting .. ' are waiting, there are ' .. waiters .. ' and signs of life of ' .. alive)
  end
  answer[#answer + 1] = { counter or '', text and 1 or 0, stored and 1 or 0, call('PTTL', holder), below and 1 or 0,
    table.concat(wrong, '; ') }
end
return answer

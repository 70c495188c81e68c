-- Renews many claims. KEYS: member, top; then holder, counter, state, ends, gone for each. ARGV:
-- run, the number of this renewal; then for each its owner, first and last token, `all` or
-- `shared`, lease, and who holds it (seat, pid, host, label). Answers for each the number of the
-- asking or renewal since which the claim has been here, 0 if it is not; nothing at all from a
-- server that may not vote.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local MARK, SHARED, DAY = 'redlock/1 ', 'redlock/1 shared', 86400
local MEMBER, TOP = KEYS[1], KEYS[2]
local function text(number) return string.format('%.0f', number) end

if call('GET', MEMBER) ~= ARGV[1] then return {} end

-- A renewal takes no more of a memory that is full: see full_memory.lua.
if KEYS[5] then read('HDEL', KEYS[5], '') end

local stamp = ARGV[2]
local answers = {}
for i = 0, (#KEYS - 2) / 5 - 1 do
  local HOLDER, TOKEN, STATE, ENDS, UNDONE = unpack(KEYS, i * 5 + 3, i * 5 + 7)
  local owner, first, last, weight, lease, who = unpack(ARGV, i * 6 + 3, i * 6 + 8)
  local shared = weight == 'shared'
  local left = math.ceil(tonumber(lease) * 1.01 / 1000) + 2
  local ends = text(now + left * 1000)
  local held = read('GET', HOLDER)
  local function claim(since)
    return owner .. ' ' .. text(last - first + 1) .. ' ' .. first .. ' ' .. lease .. ' ' .. since ..
      ' ' .. text(now) .. ' ' .. who
  end
  local function show_readers()
    call('EXPIRE', ENDS, DAY)
    local latest = call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')
    call('SET', HOLDER, SHARED, 'PX', text(math.ceil((latest[2] - now) / 1000)))
  end
  local function take(since)
    if shared then
      call('ZADD', ENDS, ends, owner)
      call('HSET', STATE, 'C' .. owner, claim(since))
      show_readers()
    else
      call('SET', HOLDER, MARK .. claim(since), 'PX', text(left))
    end
  end
  -- What is here of this owner: its token, and the asking or renewal that it answers.
  local token, since
  if held == SHARED then
    local score = read('ZSCORE', ENDS, owner)
    if score and tonumber(score) > now then
      local claimed = call('HGET', STATE, 'C' .. owner) or ''
      token, since = string.match(claimed, '^%x+ %d+ (%d+) %d+ (%d+) ')
      token = token or '0'
    end
  elseif held and string.sub(held, 1, #MARK + #owner + 1) == MARK .. owner .. ' ' then
    token, since = string.match(held, '^%S+ %x+ %d+ (%d+) %d+ (%d+) ')
    token = token or '0'
  end
  local answer = 0
  local counter, by = string.match(read('GET', TOKEN) or '0 -', '^(%d+) (%S+)$')
  counter = tonumber(counter)
  local function raise()
    local number = text(math.max(counter, tonumber(last)))
    call('SET', TOKEN, number .. ' ' .. owner, 'EX', DAY)
    if tonumber(number) > tonumber(call('GET', TOP) or 0) then call('SET', TOP, number) end
  end
  if not counter or first == '0' then
    -- The counter is in use for something else, or nobody knows the token: the claim lasts, and no
    -- more.
    counter = math.huge
  end
  if token then
    answer = tonumber(since or 1)
    -- It has not heard of the token. If its own counter is above, that is its own vote, and does no
    -- harm.
    local missed = token ~= first
      and (counter < tonumber(first) or (counter == tonumber(first) and by == owner))
    if missed then raise() end
    -- It may have missed a downgrade, too.
    if missed or (shared and held ~= SHARED) then
      take(since or '1')
    elseif shared then
      call('ZADD', ENDS, ends, owner)
      show_readers()
    else
      call('PEXPIRE', HOLDER, text(left))
    end
  elseif not held or (shared and held == SHARED) then
    -- Whoever else has had it here has raised the counter.
    local never_since = counter < tonumber(first) or (counter < math.huge and by == owner)
    if never_since and tonumber(read('GET', UNDONE) or 0) < tonumber(stamp) then
      raise()
      take(stamp)
      answer = tonumber(stamp)
    end
  end
  if answer ~= 0 then
    call('EXPIRE', STATE, DAY)
    call('EXPIRE', TOKEN, DAY)
  end
  answers[#answers + 1] = answer
end
return answers

-- Renews many claims. KEYS: member, top; then holder, counter, state, ends, gone for each. ARGV: run; then for each its owner, stamp,
-- first and last token, `all` or `shared`, lease, and what is said of its holder (seat, pid, host, label).
-- Answers for each 1 still mine, 2 taken again, 0 not mine; nothing at all from a server that may not vote.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local MARK, SHARED, DAY = 'redlock/1 ', 'redlock/1 shared', 86400
local MEMBER, TOP = KEYS[1], KEYS[2]
local function text(number) return string.format('%.0f', number) end

if call('GET', MEMBER) ~= ARGV[1] then return {} end

-- A name whose keys somebody has put to another use is not held any more, and the others still are.
local function read(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found) end
    return nil
  end
  return found
end

-- A renewal takes no more of a memory that is full: see ../redis/full_memory.lua.
if KEYS[5] then read('HDEL', KEYS[5], '') end

local STILL, HEALED, GONE = 1, 2, 0
local verdicts = {}
for i = 0, (#KEYS - 2) / 5 - 1 do
  local HOLDER, TOKEN, STATE, ENDS, UNDONE = unpack(KEYS, i * 5 + 3, i * 5 + 7)
  local owner, stamp, first, last, weight, lease, said = unpack(ARGV, i * 7 + 2, i * 7 + 8)
  local shared = weight == 'shared'
  local left = math.ceil(tonumber(lease) * 1.01 / 1000) + 2
  local ends = text(now + left * 1000)
  local held = read('GET', HOLDER)
  local claim = owner .. ' ' .. text(last - first + 1) .. ' ' .. first .. ' ' .. lease .. ' 0 ' .. text(now) .. ' ' .. said
  local function show_readers()
    call('EXPIRE', ENDS, DAY)
    local latest = call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')
    call('SET', HOLDER, SHARED, 'PX', text(math.ceil((latest[2] - now) / 1000)))
  end
  local function take()
    if shared then
      call('ZADD', ENDS, ends, owner)
      call('HSET', STATE, 'C' .. owner, claim, 'V' .. owner, stamp)
      show_readers()
    else
      call('HSET', STATE, 'X', owner .. ' ' .. stamp)
      call('SET', HOLDER, MARK .. claim, 'PX', text(left))
    end
  end
  local verdict = GONE
  if held == SHARED then
    local score = read('ZSCORE', ENDS, owner)
    if score and tonumber(score) > now then
      call('ZADD', ENDS, ends, owner)
      show_readers()
      verdict = STILL
    end
  elseif held and string.sub(held, 1, #MARK + #owner + 1) == MARK .. owner .. ' ' then
    -- One that has missed a downgrade hears of it here.
    if shared then take() else call('PEXPIRE', HOLDER, text(left)) end
    verdict = STILL
  end
  if verdict == GONE and (not held or (shared and held == SHARED)) and first ~= '0' then
    local counter = tonumber(read('GET', TOKEN) or 0)
    local by = read('HGET', STATE, 'by')
    local undone = tonumber(read('GET', UNDONE) or 0) >= tonumber(stamp)
    local free = counter and (counter < tonumber(first) or (counter == tonumber(last) and by == owner .. ':' .. last))
    if free and not undone then
      call('SET', TOKEN, last, 'EX', DAY)
      call('HSET', STATE, 'by', owner .. ':' .. last)
      if tonumber(last) > tonumber(call('GET', TOP) or 0) then call('SET', TOP, last) end
      take()
      verdict = HEALED
    end
  end
  if verdict ~= GONE then
    call('EXPIRE', STATE, DAY)
    call('EXPIRE', TOKEN, DAY)
  end
  verdicts[#verdicts + 1] = verdict
end
return verdicts

-- What is known of a name and of an owner at this server, and how it is written. What the keys mean
-- is in docs/redlock.md; tests/redlock_model/spec.rs has the same rules.
local HOLDER, TOKEN, STATE, ENDS, QUEUE, GONE, MEMBER, TOP, FLOOR
local owner, stamp
-- How a key is read that may be of another type.
local get = redis.call

local MARK, SHARED = 'redlock/1 ', 'redlock/1 shared'
local PATIENCE, DAY = 5000000, 86400
-- How long a release is remembered that came before what it undoes, in ms.
local REMEMBERED = 10000

-- A server's clock may run a little faster than the client's: a claim here outlives what its owner
-- believes.
local function life(lease)
  return math.ceil(lease * 1.01 / 1000) + 2
end

-- What is at the holder's key: nothing, an owner, `shared`, or a stranger's.
local held, kind, holder_of
local function read_holder()
  held, kind, holder_of = get('GET', HOLDER), nil, nil
  if not held then return end
  if held == SHARED then
    kind = 'shared'
  elseif string.sub(held, 1, #MARK) == MARK then
    holder_of = string.match(held, '^%S+ (%x+) ')
    kind = holder_of and 'owner' or 'stranger'
  else
    kind = 'stranger'
  end
end

-- Readers whose time is over go; the mark goes with the last of them.
local function forget_reader(reader)
  call('ZREM', ENDS, reader)
  call('HDEL', STATE, 'C' .. reader)
end
local function expire_readers()
  if kind ~= 'shared' then
    -- Readers without the mark have lost it: it was taken away.
    if call('EXISTS', ENDS) == 1 then
      for _, reader in ipairs(call('ZRANGE', ENDS, 0, -1)) do forget_reader(reader) end
    end
    return
  end
  for _, reader in ipairs(call('ZRANGEBYSCORE', ENDS, '-inf', text(now))) do
    forget_reader(reader)
  end
  if call('ZCARD', ENDS) == 0 then
    call('DEL', HOLDER)
    read_holder()
  end
end

local function is_mine()
  if kind == 'owner' then return holder_of == owner end
  return kind == 'shared' and call('ZSCORE', ENDS, owner) and true or false
end

-- How a claim is written, without the mark.
local function claim_text(tokens, token, lease, since, who)
  return owner .. ' ' .. tokens .. ' ' .. token .. ' ' .. lease .. ' ' .. since .. ' ' ..
    text(now) .. ' ' .. who
end

-- The claim that is mine: its token, and which asking or renewal it answers.
local function my_claim()
  local claim = kind == 'shared' and MARK .. (call('HGET', STATE, 'C' .. owner) or '') or held
  local token, since = string.match(claim, '^%S+ %x+ %d+ (%d+) %d+ (%d+) ')
  return claim, token, tonumber(since or 0)
end

-- The counter, and who raised it.
local function counter()
  local number, by = string.match(get('GET', TOKEN) or '0 -', '^(%d+) (%S+)$')
  return tonumber(number), by
end

-- Raises the counter in the name of the owner.
local function set_counter(number, by)
  call('SET', TOKEN, text(number) .. ' ' .. by, 'EX', DAY)
  if number > tonumber(call('GET', TOP) or 0) then call('SET', TOP, text(number)) end
end

local function keep_readers()
  call('EXPIRE', STATE, DAY)
  call('EXPIRE', ENDS, DAY)
end

-- The mark of readers lives as long as the last of them.
local function show_readers()
  local last = call('ZREVRANGE', ENDS, 0, 0, 'WITHSCORES')
  call('SET', HOLDER, SHARED, 'PX', text(math.max(math.ceil((last[2] - now) / 1000), 1)))
end

-- Writes the owner's claim.
local function store(claim, shared, lease)
  if shared then
    call('ZADD', ENDS, text(now + life(lease) * 1000), owner)
    call('HSET', STATE, 'C' .. owner, claim)
    keep_readers()
    show_readers()
  else
    call('SET', HOLDER, MARK .. claim, 'PX', text(life(lease)))
  end
end

local function leave_queue(waiter)
  call('HDEL', STATE, 'W' .. waiter, 'A' .. waiter)
  return call('ZREM', QUEUE, waiter) == 1
end

-- The one that waits longest of those that live, if there is one.
local function first_waiter()
  for _, waiter in ipairs(call('ZRANGE', QUEUE, 0, 63)) do
    local found = call('HMGET', STATE, 'A' .. waiter, 'W' .. waiter)
    if found[2] and tonumber(found[1] or 0) > now then return waiter, found[2] end
    leave_queue(waiter)
  end
end

-- Tells the one that waits longest. It is a hint: others may come first. With `readers`, only if it
-- is a reader.
local function wake(readers)
  while true do
    local waiter, said = first_waiter()
    if not waiter then return end
    local weight, seat = string.match(said, '^(%S+) %d+ %d+ %d+ (%d+) ')
    if readers and weight ~= 'shared' then return end
    if call('PUBLISH', 'leasehold:seat:' .. seat, 'w ' .. waiter) > 0 then return end
    -- Nobody hears it there.
    leave_queue(waiter)
  end
end

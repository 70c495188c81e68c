-- Asks for a claim, or asks again, by the rules. ARGV: terms; owner; what it is written as while it
-- waits (see `read_waiter`); not after. The terms are family, capacity, which asking it is, and
-- letters: `m` a mutex without a lock delay, `w` it waits, `l` changes are logged, `s` strangers
-- are expected.
local owner, written = ARGV[2], moment .. ' ' .. ARGV[3]
local _, capacity, round, how = string.match(ARGV[1], '^(%a+) (%d+) (%d+) (%a*)$')
local again = text(now + PATIENCE) .. ' ' .. round
local waiter = read_waiter(written)
capacity = tonumber(capacity)
local weight, lease = waiter.weight, waiter.lease
local function asks(letter) return string.find(how, letter, 1, true) end
local wait, logged = asks('w'), asks('l')

local function ask()
  if shown and asks('s') then expect_strangers() end
  local expired = expire()

  -- Asked before and granted: the same grant, counted from now.
  local found = extend(owner, lease)
  if found then
    -- What another's end has freed is for those who wait.
    if expired then advance() end
    note_change()
    return granted(found)
  end

  if not agrees(capacity) then
    believe_until()
    advance()
    if not agrees(capacity) and in_use() then
      note_change()
      return { REFUSED, CAPACITY, state.capacity, capacity }
    end
  end
  if not agrees(capacity) then
    state.declared, state.capacity = capacity, capacity
  end
  if weight > state.capacity then
    if expired then advance() end
    note_change()
    return { REFUSED, WEIGHT, state.capacity, weight }
  end
  -- Not before it is agreed: a name with a log is not forgotten at once.
  if logged and not state.changes then
    state.changes, state.changed_at = 0, now
  end

  if state.waiting == 0 and admits(weight) then
    local given = grant(owner, waiter, true)
    note_change()
    return granted(given)
  end

  believe_until()
  local queued = state.waiting > 0 and call('HEXISTS', STATE, 'W' .. owner) == 1
  if queued then call('HSET', STATE, 'A' .. owner, again) end
  advance()
  local answer
  local given = extend(owner, nil)
  if given then
    do_not_wake(owner)
    answer = granted(given)
  elseif not queued and state.waiting == 0 and admits(weight) then
    answer = granted(grant(owner, waiter, true))
  else
    if wait and not queued then
      state.arrivals = state.arrivals + 1
      call('ZADD', QUEUE, text(state.arrivals), owner)
      call('HSET', STATE, 'W' .. owner, written)
      if round ~= '1' then call('HSET', STATE, 'A' .. owner, again) end
      if state.waiting == 0 and state.kept_until > now then
        call('PEXPIREAT', QUEUE, text(state.kept_until / 1000))
      end
      state.waiting = state.waiting + 1
      -- The holder's key must not end before those who wait have had their turn.
      holder_stale = true
    end
    answer = { (wait or queued) and QUEUED or BUSY, pause() }
  end
  note_change()
  return answer
end

local answer = ask()
settle()
return answer

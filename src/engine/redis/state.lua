-- The state of a name, read before it is changed. What the fields mean is in docs/redis.md.

-- Locks show their holder to strangers, at a key of its own.
local shown = string.match(ARGV[1], '^%a+') == 'lock'
local DAY = 86400000000

-- What is kept as a number, and is 0 if nothing is. `at` is the latest time at which anything was
-- written, `delay` the longest lock delay of all claims since the name was last free. `ends` is the
-- end of the sole claim, where the holder's key does not say it; so is `confirmed`.
local NUMBERS = { 'declared', 'capacity', 'used', 'closed', 'upgrade_until', 'arrivals',
  'changed_at', 'kept_until', 'ends', 'delay', 'last', 'at' }

local state = {}
do
  local found = call('HMGET', STATE, 'format', 'upgrader', 'changes', 'holder', 'confirmed',
    'strangers', unpack(NUMBERS))
  if found[1] and found[1] ~= '1' then
    return redis.error_reply('LEASEHOLD format ' .. found[1])
  end
  state.stored = found[1]
  state.upgrader = found[2] ~= '' and found[2] or nil
  -- Nothing if changes are not logged.
  state.changes = tonumber(found[3] or '')
  -- What we left at the holder's key: the `sole` claim, `shared`, `closed`, or nothing.
  state.holder = found[4] or ''
  state.confirmed = found[5] == '1'
  -- When a stranger was last seen (0 is never), when the name was last left free for strangers, and
  -- until when it is left free.
  local seen, free_at, free_until = string.match(found[6] or '0 0 0', '^(%d+) (%d+) (%d+)$')
  state.seen, state.free_at = tonumber(seen), tonumber(free_at)
  state.free_until = tonumber(free_until)
  -- By a clock that was set back since.
  if state.free_at > now then state.free_at, state.free_until = now, 0 end
  for i, name in ipairs(NUMBERS) do state[name] = tonumber(found[i + 6] or 0) end
  state.kept_until = state.kept_until * 1000
end

-- The highest token that was reserved. While a lock has a state, it is there.
local last, last_changed
if state.stored and shown then last = state.last end
local function last_token()
  if not last then
    last = tonumber(call('GET', TOKEN) or 0)
    if last and last < 0 then last = last + BELOW end
  end
  return last
end
local function set_last_token(token)
  last, last_changed = token, true
end

if state.stored then
  state.waiting = call('ZCARD', QUEUE)
else
  -- A key of another type stops the script here, before anything is written.
  local left = call('HLEN', STATE) + call('ZCARD', ENDS) + call('ZCARD', QUEUE) + call('LLEN', LOG)
  if not last_token() then
    return redis.error_reply('WRONGTYPE the counter of the name is not a number')
  end
  -- A script left this that was stopped half way, because its user lacks a permission, or that lost
  -- its state. Nothing in it can be relied on.
  if left > 0 then call('DEL', STATE, ENDS, QUEUE, LOG) end
  state.waiting = 0
end

-- A waiter is written as: when it came, how it listens (`s` for the sharded channel, `-` for the
-- ordinary one), weight, tokens, lease, delay, the length of its value, the value, seat, process,
-- host and label. The asker writes all but the first.
local function read_waiter(written)
  local since, listens, weight, tokens, lease, delay, length, at =
    string.match(written, '^(%d+) (%S) (%d+) (%d+) (%d+) (%d+) (%d+) ()')
  local seat, pid, host, label = string.match(written, '^(%d+) (%d+) (%S+) (.*)$', at + length)
  return {
    weight = tonumber(weight), tokens = tonumber(tokens), lease = tonumber(lease),
    delay = tonumber(delay), since = tonumber(since), listens = listens,
    value = string.sub(written, at, at + length - 1), seat = seat, pid = pid, host = host,
    label = label,
  }
end

-- Until when a waiter is believed to live, and how often it has asked. That is written down when it
-- asks again.
local function sign_of_life(waiter, again)
  local alive_until, round = string.match(again or '', '^(%d+) (%d+)$')
  return tonumber(alive_until or waiter.since + PATIENCE), round or '1'
end

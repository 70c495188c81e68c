-- The state of a name, read before it is changed. What the fields mean is in docs/redis.md.

-- Locks show their holder to strangers, at a key of its own.
local shown = string.match(ARGV[1], '^%a+') == 'lock'
local DAY = 86400000000

local state = {}
do
  local found = call('HMGET', STATE, 'format', 'declared', 'capacity', 'used', 'closed', 'upgrader',
    'upgrade_until', 'arrivals', 'changes', 'changed_at', 'kept_until', 'holder', 'ends',
    'confirmed', 'delay', 'strangers', 'last', 'at')
  if found[1] and found[1] ~= '1' then
    return redis.error_reply('LEASEHOLD format ' .. found[1])
  end
  state.stored = found[1]
  state.declared = tonumber(found[2] or 0)
  state.capacity = tonumber(found[3] or 0)
  state.used = tonumber(found[4] or 0)
  state.closed = tonumber(found[5] or 0)
  state.upgrader = found[6] or nil
  if state.upgrader == '' then state.upgrader = nil end
  state.upgrade_until = tonumber(found[7] or 0)
  state.arrivals = tonumber(found[8] or 0)
  state.changes = found[9] and found[9] ~= '' and tonumber(found[9]) or nil
  state.changed_at = tonumber(found[10] or 0)
  state.kept_until = tonumber(found[11] or 0) * 1000
  -- What we left at the holder's key: the `sole` claim, `shared`, `closed`, or nothing.
  state.holder = found[12] or ''
  -- The end of the sole claim and whether it is confirmed, where the holder's key does not say it.
  state.ends, state.confirmed = tonumber(found[13] or 0), found[14] == '1'
  -- The longest lock delay of all claims since the name was last free.
  state.delay = tonumber(found[15] or 0)
  -- When a stranger was last seen (0 is never), when the name was last left free for strangers, and
  -- until when it is left free.
  local seen, free_at, free_until = string.match(found[16] or '0 0 0', '^(%d+) (%d+) (%d+)$')
  state.seen, state.free_at = tonumber(seen), tonumber(free_at)
  state.free_until = tonumber(free_until)
  -- By a clock that was set back since.
  if state.free_at > now then state.free_at, state.free_until = now, 0 end
  state.last = tonumber(found[17] or 0)
  -- The latest time at which anything of it was written.
  state.at = tonumber(found[18] or 0)
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

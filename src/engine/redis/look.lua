-- What is known of a name. Changes nothing. KEYS as everywhere; ARGV: family, last change seen, waiters wanted (0 or 1).
local HOLDER, STATE, ENDS, QUEUE, LOG = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(number) return string.format('%.0f', number) end

local held = ARGV[1] == 'lock' and call('GET', HOLDER) or ''
local left = held ~= '' and call('PTTL', HOLDER) or 0
local found = call('HMGET', STATE, 'format', 'capacity', 'closed', 'waiting', 'changes', 'holder')
if found[1] and found[1] ~= '1' then
  return redis.error_reply('LEASEHOLD format ' .. found[1])
end
local claims = {}
local ours = string.match(held, '^leasehold/1 (%S+)')
if ARGV[1] ~= 'lock' or (found[6] and found[6] ~= '' and found[6] == ours) then
  local ends = call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local packed = tonumber(ends[i + 1]) > now and call('HGET', STATE, 'C' .. ends[i])
    if packed then
      local claim = cmsgpack.unpack(packed)
      claims[#claims + 1] = { ends[i], claim.seat, text(claim.weight), text(claim.token), text(claim.tokens),
        text(claim.lease), ends[i + 1], text(claim.delay), text(claim.since), claim.confirmed and '1' or '0', claim.pid,
        claim.host, claim.label, claim.value }
    end
  end
  held = ''
elseif ours == 'shared' or ours == 'closed' then
  held = ''
end
local waiters = {}
if ARGV[3] == '1' then
  for _, owner in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
    local waiting = call('HMGET', STATE, 'W' .. owner, 'A' .. owner)
    if waiting[1] then
      local waiter = cmsgpack.unpack(waiting[1])
      waiters[#waiters + 1] = { owner, waiter.seat, text(waiter.weight), text(waiter.tokens), text(waiter.lease),
        text(waiter.delay), text(waiter.since), string.match(waiting[2] or '0', '^%d+'), waiter.pid, waiter.host,
        waiter.label, waiter.value }
    end
  end
end
local changes = {}
local seen = tonumber(ARGV[2])
if tonumber(found[5] or 0) and tonumber(found[5] or 0) > seen then
  for _, packed in ipairs(call('LRANGE', LOG, 0, -1)) do
    local change = cmsgpack.unpack(packed)
    if change.number > seen then
      changes[#changes + 1] = { text(change.number), text(change.token), change.pid, change.host, change.label,
        change.value }
    end
  end
end
return { text(now), held, text(left), found[2] or '0', found[3] or '0', found[4] or '0',
  found[5] and found[5] ~= '' and found[5] or '0', claims, waiters, changes }

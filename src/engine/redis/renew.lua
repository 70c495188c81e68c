-- Renews many claims. KEYS: holder, state, ends, queue, log for each. ARGV: for each its family, owner and lease.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local CONFIRM, GRACE, HOUR, DAY = 3000000, 10000000, 3600000000, 86400000000
local function text(number) return string.format('%.0f', number) end

-- Gives the holder's key so many milliseconds more, and writes down there what has changed.
local function show(holder, held, kind, lease, left)
  local said, before, lease_said, after = string.match(held, '^leasehold/1(.)(%x+ %d+ %d+ )(%d+)( .*)$')
  if said and (said ~= kind or lease_said ~= text(lease)) then
    call('SET', holder, 'leasehold/1' .. kind .. before .. text(lease) .. after, 'PX', text(left))
  else
    call('PEXPIRE', holder, text(left))
  end
end

-- A renewal takes no more of a memory that is full: see full_memory.lua.
read('HDEL', KEYS[2], '')

local verdicts = {}
for i = 0, #KEYS / 5 - 1 do
  local holder, state, ends, queue, log = unpack(KEYS, i * 5 + 1, i * 5 + 5)
  local shown, owner, lease = ARGV[i * 3 + 1] == 'lock', ARGV[i * 3 + 2], tonumber(ARGV[i * 3 + 3])
  local held = shown and read('GET', holder)
  local kind, ours = string.match(held or '', '^leasehold/1([ +?:])(%S+)')
  local verdict = 0
  if shown and ours ~= owner and ours ~= 'shared' then
    -- Gone: released, ended, or taken away.
  elseif shown and ours == owner and (kind == ' ' or read('HGET', state, 'holder') ~= 'sole') then
    -- All that is known of it stands at the holder's key. What the state may still say is of those who held before.
    show(holder, held, ' ', lease, math.ceil(lease / 1000))
    verdict = 1
  else
    local found = read('HMGET', state, 'C' .. owner, 'kept_until', 'holder', 'changes', 'delay', 'ends', 'at') or {}
    local sole = ours == owner
    local expires = sole and found[6] or not sole and read('ZSCORE', ends, owner)
    if kind == '?' and sole then
      local said, since = string.match(held, '^%S+ %d+ %d+ (%d+) %d+ (%d+) ')
      expires = since + math.min(tonumber(said), CONFIRM)
    end
    -- What the table says is good only as long as the holder's key says that there is one.
    local known = sole or found[1] and (not shown or found[3] == 'shared')
    if known and expires and tonumber(expires) > now then
      local delay = tonumber(found[5] or 0)
      local left = math.ceil((lease + GRACE + delay) / 1000)
      if sole then
        call('HSET', state, 'ends', text(now + lease), 'confirmed', '1')
        show(holder, held, kind == ':' and kind or '+', lease, left)
      else
        local claim = cmsgpack.unpack(found[1])
        if claim.lease ~= lease or not claim.confirmed then
          claim.lease, claim.confirmed = lease, true
          call('HSET', state, 'C' .. owner, cmsgpack.pack(claim))
        end
        call('ZADD', ends, text(now + lease), owner)
        if shown and call('PTTL', holder) < left then call('PEXPIRE', holder, text(left)) end
      end
      if now > tonumber(found[7] or 0) then call('HSET', state, 'at', text(now)) end
      -- As `keep_until` in rules.lua has it: what belongs together ends together.
      local wanted = now + lease + math.max(delay + HOUR, (found[4] or '') ~= '' and DAY or 0)
      if wanted > tonumber(found[2] or 0) * 1000 then
        local kept = text(math.ceil((wanted + HOUR) / 1000))
        call('HSET', state, 'kept_until', kept)
        for _, key in ipairs({ state, ends, queue, log }) do
          call('PEXPIREAT', key, kept)
        end
      end
      verdict = 1
    end
  end
  verdicts[#verdicts + 1] = verdict
end
return verdicts

-- Renews many claims. KEYS: holder, state, ends, queue, log for each. ARGV: for each its family,
-- owner and lease. Answers 1 for each that was renewed, 0 for each that is gone.
local CONFIRM, GRACE, HOUR, DAY = 3000000, 10000000, 3600000000, 86400000000

-- Gives the holder's key so many milliseconds more, and writes there what has changed.
local function show(holder, held, kind, lease, left)
  local changed = with_lease(held, kind, lease)
  if changed then
    call('SET', holder, changed, 'PX', text(left))
  else
    call('PEXPIRE', holder, text(left))
  end
end

-- A renewal takes no more of a memory that is full: see full_memory.lua.
read('HDEL', KEYS[2], '')

local verdicts = {}
for i = 0, #KEYS / 5 - 1 do
  local holder, state, ends, queue, log = unpack(KEYS, i * 5 + 1, i * 5 + 5)
  local family, owner, length = unpack(ARGV, i * 3 + 1, i * 3 + 3)
  local shown, lease = family == 'lock', tonumber(length)
  local held = shown and read('GET', holder)
  local kind, ours = holder_word(held)
  local verdict = 0
  if shown and ours ~= owner and ours ~= 'shared' then
    -- Gone: released, ended, or taken away.
  elseif shown and ours == owner and (kind == ' ' or read('HGET', state, 'holder') ~= 'sole') then
    -- All that is known of it stands at the holder's key. A state is of those who held before.
    show(holder, held, ' ', length, math.ceil(lease / 1000))
    verdict = 1
  else
    local found = read('HMGET', state, 'C' .. owner, 'kept_until', 'holder', 'changes', 'delay',
      'ends', 'at') or {}
    local sole = ours == owner
    local expires = sole and found[6] or not sole and read('ZSCORE', ends, owner)
    if kind == '?' and sole then
      local _, _, _, unconfirmed = read_queued(held, CONFIRM)
      expires = unconfirmed
    end
    -- What the table says is good only as long as the holder's key says that there is one.
    local known = sole or found[1] and (not shown or found[3] == 'shared')
    if known and expires and tonumber(expires) > now then
      local delay = tonumber(found[5] or 0)
      local left = math.ceil((lease + GRACE + delay) / 1000)
      if sole then
        call('HSET', state, 'ends', text(now + lease), 'confirmed', '1')
        show(holder, held, kind == ':' and kind or '+', length, left)
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
      -- As `keep_until` in settle.lua has it: what belongs together ends together.
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

-- Renews many claims. KEYS: holder, state, ends, queue, log for each. ARGV: for each its family, owner and lease.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local GRACE, HOUR, DAY = 10000000, 3600000000, 86400000000
local function text(number) return string.format('%.0f', number) end

-- A renewal takes no more of a memory that is full: see full_memory.lua.
read('HDEL', KEYS[2], '')

local verdicts = {}
for i = 0, #KEYS / 5 - 1 do
  local holder, state, ends, queue, log = unpack(KEYS, i * 5 + 1, i * 5 + 5)
  local shown, owner, lease = ARGV[i * 3 + 1] == 'lock', ARGV[i * 3 + 2], tonumber(ARGV[i * 3 + 3])
  local held = shown and read('GET', holder)
  local ours = held and string.match(held, '^leasehold/1 (%S+)')
  local verdict = 0
  if shown and ours ~= owner and ours ~= 'shared' then
    -- Gone: released, ended, or taken away.
  elseif shown and ours == owner and call('HGET', state, 'holder') ~= owner then
    -- All that is known of it stands at the holder's key. What the state may still say is of those who held before.
    local left = text(math.ceil(lease / 1000))
    local before, said, after = string.match(held, '^(%S+ %x+ %d+ %d+ )(%d+)( .*)$')
    if said and said ~= text(lease) then
      call('SET', holder, before .. text(lease) .. after, 'PX', left)
    else
      call('PEXPIRE', holder, left)
    end
    verdict = 1
  else
    local expires = read('ZSCORE', ends, owner)
    if expires and tonumber(expires) > now then
      local found = read('HMGET', state, 'C' .. owner, 'kept_until', 'holder', 'changes', 'delay')
      if found and found[1] and (not shown or found[3] == ours) then
        local claim, delay = cmsgpack.unpack(found[1]), tonumber(found[5] or 0)
        if claim.lease ~= lease or not claim.confirmed then
          claim.lease, claim.confirmed = lease, true
          call('HSET', state, 'C' .. owner, cmsgpack.pack(claim))
        end
        call('ZADD', ends, text(now + lease), owner)
        if shown then
          local left = math.ceil((lease + GRACE + delay) / 1000)
          if call('PTTL', holder) < left then call('PEXPIRE', holder, text(left)) end
        end
        -- As `keep_until` in rules.lua has it: what belongs together ends together.
        local wanted = now + lease + math.max(delay + HOUR, (found[4] or '') ~= '' and DAY or 0)
        if wanted > tonumber(found[2] or 0) then
          local kept = wanted + HOUR
          call('HSET', state, 'kept_until', text(kept))
          for _, key in ipairs({ state, ends, queue, log }) do
            call('PEXPIRE', key, text((kept - now) / 1000))
          end
        end
        verdict = 1
      end
    end
  end
  verdicts[#verdicts + 1] = verdict
end
return verdicts

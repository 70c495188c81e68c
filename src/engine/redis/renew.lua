-- Renews many claims. KEYS: holder, state, ends for each. ARGV: for each its family, owner and lease.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local GRACE, HOUR = 10000000, 3600000000
local function text(number) return string.format('%.0f', number) end

-- A name whose keys somebody has put to another use is not held any more, and the others still are.
local function read(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found) end
    return nil
  end
  return found
end

-- A renewal takes no more of a memory that is full: see full_memory.lua.
read('HDEL', KEYS[2], '')

local verdicts = {}
for i = 1, #KEYS, 3 do
  local holder, state, ends = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local shown, owner, lease = ARGV[i] == 'lock', ARGV[i + 1], tonumber(ARGV[i + 2])
  local held = shown and read('GET', holder)
  local ours = held and string.match(held, '^leasehold/1 (%S+)')
  local verdict = 0
  if shown and ours ~= owner and ours ~= 'shared' then
    -- Gone: released, ended, or taken away.
  elseif shown and ours == owner and call('EXISTS', state) == 0 then
    call('PEXPIRE', holder, text(math.ceil(lease / 1000)))
    verdict = 1
  else
    local expires = read('ZSCORE', ends, owner)
    if expires and tonumber(expires) > now then
      local found = read('HMGET', state, 'C' .. owner, 'kept_until', 'holder')
      if found and found[1] and (not shown or found[3] == ours) then
        local claim = cmsgpack.unpack(found[1])
        if claim.lease ~= lease or not claim.confirmed then
          claim.lease, claim.confirmed = lease, true
          call('HSET', state, 'C' .. owner, cmsgpack.pack(claim))
        end
        call('ZADD', ends, text(now + lease), owner)
        if shown then
          local left = math.ceil((lease + GRACE) / 1000)
          if call('PTTL', holder) < left then call('PEXPIRE', holder, text(left)) end
        end
        if now + lease + HOUR > tonumber(found[2] or 0) then
          local kept = now + lease + 2 * HOUR
          call('HSET', state, 'kept_until', text(kept))
          call('PEXPIRE', state, text((kept - now) / 1000))
          call('PEXPIRE', ends, text((kept - now) / 1000))
        end
        verdict = 1
      end
    end
  end
  verdicts[#verdicts + 1] = verdict
end
return verdicts

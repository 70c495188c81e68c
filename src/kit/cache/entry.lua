-- A step of an entry: the twin of `Step`. Arguments: what is asked, then what belongs to it, in the
-- order of the fields of `Ask`. An owner is 16 bytes; durations are in microseconds.
local largest = 4503599627370496
local value, asked = values[1], arguments[1]

local function answer(word, held, first, lives, version, bytes)
  return struct.pack('>BBI8I8I8', word, held or 0, first or 0, lives or 0, version or 0) .. (bytes or '')
end

-- As in entry.rs: what is held (0 nothing, 1 none, 2 a value), and what the owner does (0 nobody,
-- 1 loads, 2 has stored).
local held, loader, version, least, least_until, fresh_until, ends = 0, 0, 0, 0, 0, 0, 0
local loads_until, retry_at, cost, owner, bytes = 0, 0, 0, string.rep('\0', 16), ''
if value then
  if #value < 71 then return answer(0) end
  local tag, flags
  tag, flags, version, least, least_until, fresh_until, ends, loads_until, retry_at, cost =
    struct.unpack('>BBI7I7I7I7I7I7I7I4', value)
  held, loader = flags % 16, math.floor(flags / 16)
  local latest = math.max(version, least, least_until, fresh_until, ends, loads_until, retry_at)
  if tag ~= 0x91 or held > 2 or loader > 2 or latest >= largest then return answer(0) end
  owner, bytes = string.sub(value, 56, 71), string.sub(value, 72)
end
if held ~= 0 and ends <= now then held, version, bytes = 0, 0, '' end
if least_until <= now then least = 0 end

local function save()
  local over_at = math.max(retry_at, least_until)
  if held ~= 0 then over_at = math.max(over_at, ends) end
  if loader == 1 then over_at = math.max(over_at, loads_until) end
  if over_at <= now then return delete(1) end
  put(1, struct.pack('>BBI7I7I7I7I7I7I7I4', 0x91, held + loader * 16, version, least, least_until,
    fresh_until, ends, loads_until, retry_at, cost) .. owner .. bytes, over_at - now)
end

local function found(word)
  return answer(word, held, math.max(0, fresh_until - now), ends - now, version,
    held == 2 and bytes or '')
end

if asked == 'look' then
  local usable = held ~= 0 and version >= tonumber(arguments[5])
  local fresh = math.max(0, fresh_until - now)
  local early = fresh * 1000 <= cost * tonumber(arguments[6])
  if usable and fresh > 0 and not early then return found(1) end
  local busy = loader == 1 and loads_until > now and owner ~= arguments[2]
  local paused = retry_at > now
  if busy or paused or arguments[4] == '0' then
    if usable then return found(fresh > 0 and 1 or 2) end
    if busy then return answer(5, 0, loads_until - now) end
    if paused then return answer(6, 0, retry_at - now) end
    return answer(7)
  end
  local told = usable and found(3) or answer(4)
  loader, owner, loads_until = 1, arguments[2], now + arguments[3]
  save()
  return told
end

if asked == 'invalidate' then
  local from = tonumber(arguments[2])
  if from > 0 then
    least, least_until = math.max(least, from), math.max(least_until, now + arguments[3])
  end
  if from == 0 or held == 0 or version < from then
    if not value and from == 0 then return answer(8) end
    held, version, bytes = 0, 0, ''
    loader, owner, loads_until = 0, string.rep('\0', 16), 0
  end
  save()
  return answer(8)
end

if asked == 'store' and loader == 2 and owner == arguments[2] then return answer(8) end
if loader ~= 1 or owner ~= arguments[2] then return answer(9) end
if asked == 'store' then
  local stored = tonumber(arguments[4])
  local wanted = math.max(least, held ~= 0 and version or 0)
  if stored < wanted then
    loader, owner, retry_at = 0, string.rep('\0', 16), now + arguments[8]
    save()
    return answer(10, 0, wanted)
  end
  held, version, loader = arguments[3] == '1' and 2 or 1, stored, 2
  fresh_until = now + arguments[5]
  ends = fresh_until + arguments[6]
  loads_until, retry_at, cost, bytes = 0, 0, tonumber(arguments[7]), arguments[9]
elseif asked == 'extend' then
  loads_until = now + arguments[3]
else
  if arguments[3] ~= '0' then retry_at = now + arguments[3] end
  loader, owner, loads_until = 0, string.rep('\0', 16), 0
end
save()
return answer(8)

-- Takes units for a buyer: the twin of `Reserve`. The cells are the head of a shard, the buyer and
-- the bucket of the reservation. Arguments: the number of the reservation as 16 bytes, the buyer,
-- the quantity, the number of the bucket, and the epoch, shards and buckets that the caller
-- believes in.
local largest = 4503599627370496
local head, buyer, bucket = values[1], values[2], values[3]
local number, name, quantity = arguments[1], arguments[2], tonumber(arguments[3])

local function answer(word, byte, short, wide)
  return struct.pack('>BBI4I8', word, byte or 0, short or 0, wide or 0)
end

if not head then return answer(6) end
if #head < 91 or string.byte(head) ~= 0x81 then return answer(0) end
local mode, epoch, _, shards, buckets, opens, closes, ends, pay_within, _, limit =
  struct.unpack('>BI4BBI2I7I7I7I7I7I4', head, 2)
local left, reserved, taken = struct.unpack('>I4I4I7', head, 77)
local latest = math.max(opens, closes, ends, pay_within, taken)
if #head ~= 91 + math.ceil(buckets / 8) or shards == 0 or buckets == 0 or latest >= largest then
  return answer(0)
end
if epoch ~= tonumber(arguments[5]) or shards ~= tonumber(arguments[6])
  or buckets ~= tonumber(arguments[7]) then
  return answer(8, shards, epoch, buckets)
end
if mode ~= 0 then return answer(7) end

if bucket then
  if #bucket < 5 or string.byte(bucket) ~= 0x83 then return answer(0) end
  local found = struct.unpack('>I4', bucket, 2)
  if found > epoch then return answer(0) end
  if found < epoch then bucket = false end
end
-- The reservations are read one by one only if their bytes contain the number.
if bucket and string.find(bucket, number, 6, true) then
  local at = 6
  while at <= #bucket do
    local length = string.byte(bucket, at + 29)
    if not length or at + 29 + length > #bucket then return answer(0) end
    if string.sub(bucket, at, at + 15) == number then
      local state, _, had, deadline = struct.unpack('>BBI4I7', bucket, at + 16)
      if state > 7 or deadline >= largest then return answer(0) end
      if had ~= quantity or string.sub(bucket, at + 30, at + 29 + length) ~= name then
        return answer(9)
      end
      -- Asked before: the sale may be over by now, and the answer is the same.
      return answer(1, state, left, math.max(0, deadline - now))
    end
    at = at + 30 + length
  end
end

if now < opens then return answer(2, 0, 0, opens - now) end
if now >= closes then return answer(3) end
local units = 0
if buyer then
  if #buyer ~= 9 or string.byte(buyer) ~= 0x82 then return answer(0) end
  local found
  found, units = struct.unpack('>I4I4', buyer, 2)
  if found > epoch then return answer(0) end
  if found < epoch then units = 0 end
end
if units + quantity > limit then return answer(4, 0, math.max(0, limit - units)) end
if left < quantity then return answer(5, 0, left) end

-- The bit of the bucket tells the workers.
local place = tonumber(arguments[4])
local byte, bit = 92 + math.floor(place / 8), 2 ^ (place % 8)
local pending = string.byte(head, byte)
if math.floor(pending / bit) % 2 == 0 then pending = pending + bit end
local lives = math.max(ends - now, 60000000)
put(1, string.sub(head, 1, 76)
  .. struct.pack('>I4I4I7', left - quantity, math.min(reserved + quantity, 4294967295), taken + quantity)
  .. string.sub(head, 92, byte - 1) .. string.char(pending) .. string.sub(head, byte + 1), lives)
put(2, struct.pack('>BI4I4', 0x82, epoch, units + quantity), lives)
put(3, (bucket or struct.pack('>BI4', 0x83, epoch)) .. number
  .. struct.pack('>BBI4I7B', 0, 0, quantity, now + pay_within, #name) .. name, lives)
return answer(1, 0, left - quantity, pay_within)

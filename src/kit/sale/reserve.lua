-- Takes units for those who ask, one after the other: the twin of `Reserve`. The first cell is the
-- head of their shard. Arguments: the epoch, shards and buckets that the caller believes in; then
-- for each who asks the number of the reservation as 16 bytes, the buyer, the quantity, the number
-- of the bucket, and which cells are the buyer's and the bucket's.
local largest = 4503599627370496
local head = values[1]

local function answer(word, byte, short, wide)
  return struct.pack('>BBI4I8', word, byte or 0, short or 0, wide or 0)
end
local function to_all(...) return string.rep(answer(...), (#arguments - 3) / 6) end

if not head then return to_all(6) end
if #head < 91 or string.byte(head) ~= 0x81 then return to_all(0) end
local mode, epoch, _, shards, buckets, opens, closes, ends, pay_within, _, limit =
  struct.unpack('>BI4BBI2I7I7I7I7I7I4', head, 2)
local left, reserved, taken = struct.unpack('>I4I4I7', head, 77)
local latest = math.max(opens, closes, ends, pay_within, taken)
if #head ~= 91 + math.ceil(buckets / 8) or shards == 0 or buckets == 0 or latest >= largest then
  return to_all(0)
end
-- It was forgotten, or has ended.
if mode == 2 or ends <= now then return to_all(6) end
if epoch ~= tonumber(arguments[1]) or shards ~= tonumber(arguments[2])
  or buckets ~= tonumber(arguments[3]) then
  return to_all(8, shards, epoch, buckets)
end
if mode ~= 0 then return to_all(7) end

local pending, before, lives = string.sub(head, 92), taken, ends - now

-- `values` has the cells as those leave them who came before.
local function store(cell, bytes)
  values[cell] = bytes
  put(cell, bytes, lives)
end

local function reserve(number, name, quantity, place, buyer_cell, bucket_cell)
  local buyer, bucket = values[buyer_cell], values[bucket_cell]
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

  store(bucket_cell, (bucket or struct.pack('>BI4', 0x83, epoch)) .. number
    .. struct.pack('>BBI4I7B', 0, 0, quantity, now + pay_within, #name) .. name)
  store(buyer_cell, struct.pack('>BI4I4', 0x82, epoch, units + quantity))
  left, taken = left - quantity, taken + quantity
  reserved = math.min(reserved + quantity, 4294967295)
  -- The bit of the bucket tells the workers.
  local byte, bit = 1 + math.floor(place / 8), 2 ^ (place % 8)
  local bits = string.byte(pending, byte)
  if math.floor(bits / bit) % 2 == 0 then
    pending = string.sub(pending, 1, byte - 1) .. string.char(bits + bit) .. string.sub(pending, byte + 1)
  end
  return answer(1, 0, left, pay_within)
end

local answers = {}
for at = 4, #arguments, 6 do
  local number, name, quantity, place, buyer_cell, bucket_cell = unpack(arguments, at, at + 5)
  answers[#answers + 1] = reserve(number, name, tonumber(quantity), tonumber(place),
    tonumber(buyer_cell), tonumber(bucket_cell))
end
if taken > before then
  -- The head outlives the others.
  put(1, string.sub(head, 1, 76) .. struct.pack('>I4I4I7', left, reserved, taken) .. pending,
    lives + 60000000)
end
return table.concat(answers)

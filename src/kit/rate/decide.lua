-- Lets several limits decide over one request: the twin of `Decide`. Seven arguments for each cell:
-- kind (0 token bucket, 1 fixed window), capacity, units of a token or the period, units that come
-- back in a microsecond, what is asked (0 take, 1 peek, 2 refund, 3 reset), and two numbers of it.
local largest, latest = 2251799813685248, 9007199254740992
local allowed, denied, impossible = 1, 2, 3

-- Whole division. In floating point the quotient may be off by one.
local function divide(a, b)
  local quotient = math.floor(a / b)
  local rest = a - quotient * b
  if rest < 0 then return quotient - 1, rest + b end
  if rest >= b then return quotient + 1, rest - b end
  return quotient, rest
end

local function divide_up(a, b)
  local quotient, rest = divide(a, b)
  return rest > 0 and quotient + 1 or quotient
end

local function answer(word, cost, left, reset, number)
  return struct.pack('>BI4I4I8I8I8', word, cost, left, reset, number, 0)
end

local limits, all = {}, true
for cell = 1, #arguments / 7 do
  local base = cell * 7 - 7
  local kind, capacity = arguments[base + 1], tonumber(arguments[base + 2])
  local size, refill = tonumber(arguments[base + 3]), tonumber(arguments[base + 4])
  local asked, first = arguments[base + 5], tonumber(arguments[base + 6])
  local second = tonumber(arguments[base + 7])
  local value, at = values[cell], now
  -- Of a bucket the units that are owed; of a window what was used, and its start.
  local used, start, left = 0, now, capacity
  if kind == '0' then
    if value then
      if #value ~= 22 or string.byte(value) ~= 0x41 then return '\0' end
      local old, changed, units = struct.unpack('>I7I7I7', value, 2)
      if old == 0 or old > largest or units > largest or changed >= latest then return '\0' end
      if old ~= size then units = math.min(divide_up(units, old) * size, capacity * size) end
      if changed > at then at = changed end
      used = math.max(0, units - refill * (at - changed))
      left = divide(math.max(0, capacity * size - used), size)
    end
  elseif value then
    if #value ~= 12 or string.byte(value) ~= 0x11 then return '\0' end
    start, used = struct.unpack('>I7I4', value, 2)
    if start >= latest then return '\0' end
    if start > at then at = start end
    if at >= start + size then start, used = at, 0 end
    left = math.max(0, capacity - used)
  end

  -- How long until nothing counts as used.
  local function reset()
    if kind == '0' then return divide_up(used, refill) end
    return used == 0 and 0 or start + size - at
  end

  local limit = { before = answer(allowed, 0, left, reset(), at) }
  limits[cell] = limit
  if asked == '3' then
    limit.answer, limit.change = answer(allowed, 0, capacity, 0, at), true
  elseif asked == '2' then
    if second <= at then
      local back = 0
      if kind == '0' then
        back = math.max(0, math.min(first, capacity) * size - refill * (at - second))
      elseif second >= start then
        back = first
      end
      used = math.max(0, used - back)
      limit.change = true
      left = kind == '0' and divide(math.max(0, capacity * size - used), size)
        or math.max(0, capacity - used)
    end
    limit.answer = answer(allowed, 0, left, reset(), at)
  elseif first > capacity then
    limit.answer, all = answer(impossible, 0, capacity, 0, 0), false
  elseif first > left then
    local retry
    if kind == '0' then
      retry = divide_up(used + first * size - capacity * size, refill)
    else
      retry = start + size - at
    end
    limit.answer, all = answer(denied, 0, left, reset(), retry), false
  elseif asked == '0' then
    local cost = math.min(math.max(first, second), left)
    if cost > 0 then
      used = used + (kind == '0' and cost * size or cost)
      limit.change = true
    end
    limit.answer = answer(allowed, cost, left - cost, reset(), at)
  else
    limit.answer = limit.before
  end
  if limit.change then
    limit.lives = asked == '3' and 0 or reset()
    if limit.lives == 0 then
      limit.state = false
    elseif kind == '0' then
      limit.state = struct.pack('>BI7I7I7', 0x41, size, at, used)
    else
      limit.state = struct.pack('>BI7I4', 0x11, start, used)
    end
  end
end

local answers = {}
for cell, limit in ipairs(limits) do
  local refused = string.byte(limit.answer) ~= allowed
  -- Those that would have allowed it tell how things stand without it.
  answers[cell] = (all or refused) and limit.answer or limit.before
  if all and limit.change then
    if limit.state then put(cell, limit.state, limit.lives) else delete(cell) end
  end
end
return table.concat(answers)

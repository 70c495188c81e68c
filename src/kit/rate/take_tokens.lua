-- The usual question, a few tokens of one token bucket, in as few steps as can be: the shortcut of
-- `Decide`. Arguments as in decide.lua, to which everything else is left.
if arguments[1] == '0' and arguments[5] == '0' and arguments[6] == arguments[7] then
  local size, refill = tonumber(arguments[3]), tonumber(arguments[4])
  local cost, all = tonumber(arguments[6]), arguments[2] * size
  local used, usual = 0, cost > 0 and cost * size <= all
  if value then
    usual = usual and #value == 22
    if usual then
      local tag, old, changed, units = struct.unpack('>BI7I7I7', value)
      usual = tag == 0x41 and old == size and changed <= now and units <= all
      used = math.max(0, units - refill * (now - changed))
    end
  end
  -- Of numbers below 2^52 the quotient is exact enough to be rounded to the right whole number.
  local left = all - used - cost * size
  if usual and left >= 0 then
    used = used + cost * size
    lives = math.ceil(used / refill)
    bytes = struct.pack('>BI7I7I7', 0x41, size, now, used)
    answer = struct.pack('>BI4I4I8I8I8', 1, cost, math.floor(left / size), lives, now, 0)
  elseif usual then
    local reset, retry = math.ceil(used / refill), math.ceil(-left / refill)
    answer = struct.pack('>BI4I4I8I8I8', 2, 0, math.floor((all - used) / size), reset, retry, 0)
  end
end

-- The usual question, for a value that is fresh, in as few steps as can be: the shortcut of `Step`.
-- Everything else is left to entry.lua.
if value and arguments[1] == 'look' and #value >= 71 then
  local tag, flags, version, least, least_until, fresh_until, ends, loads_until, retry_at, cost =
    struct.unpack('>BBI7I7I7I7I7I7I7I4', value)
  local held = flags % 16
  local latest = math.max(version, least, least_until, fresh_until, ends, loads_until, retry_at)
  local fresh = fresh_until - now
  if tag == 0x91 and flags < 48 and (held == 1 or held == 2) and latest < 4503599627370496
    and fresh > 0 and ends > now and version >= tonumber(arguments[5])
    and fresh * 1000 > cost * tonumber(arguments[6]) then
    answer = struct.pack('>BBI8I8I8', 1, held, fresh, ends - now, version)
    if held == 2 then answer = answer .. string.sub(value, 72) end
  end
end

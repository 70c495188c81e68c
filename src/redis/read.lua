-- Reads a key of one of several names. A name whose key has another type is not held any more; the
-- other names still are.
local function read(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found) end
    return nil
  end
  return found
end


-- Reads a key of a name. A name whose keys somebody has put to another use is not held any more, and the others still are.
local function read(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found) end
    return nil
  end
  return found
end


-- Reads cells, and writes to them if all are still at the versions that were read. ARGV: `read`; or
-- `swap` and for each cell its version, what becomes of it (`keep`, `put`, `delete`), how long it
-- lives in microseconds, bytes.
local swaps = ARGV[1] == 'swap'
for cell = 1, #KEYS do
  local at = 4 * cell - 2
  swaps = swaps and versions[cell] == tonumber(ARGV[at])
  if swaps and ARGV[at + 1] == 'put' then put(cell, ARGV[at + 3], ARGV[at + 2]) end
  if swaps and ARGV[at + 1] == 'delete' then delete(cell) end
end
if swaps then
  write()
  return false
end
local found = {}
for cell = 1, #KEYS do
  found[cell] = { text(versions[cell]), values[cell] or '' }
end
return { text(now), found }

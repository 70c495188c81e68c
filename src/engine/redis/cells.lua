-- Cells. KEYS: the cells of one call. Each is a string, `VERSION BYTES`, that expires. The version
-- is also the time of the change in microseconds: two scripts take longer than that.

-- Not before the last change of any of the cells, although the server's clock may have been set
-- back.
local time = now
local versions, values, changes = {}, {}, {}
for cell, key in ipairs(KEYS) do
  local found = call('GET', key)
  if found then
    local space = string.find(found, ' ', 1, true)
    local version = space and tonumber(string.sub(found, 1, space - 1))
    if not version then return redis.error_reply('WRONGTYPE not a cell') end
    versions[cell], values[cell] = version, string.sub(found, space + 1)
    if version > time then time = version end
  else
    versions[cell], values[cell] = 0, false
  end
end

-- What becomes of a cell when all is decided. It lives for so many microseconds.
local function put(cell, bytes, lives) changes[cell] = { bytes, lives } end
local function delete(cell) changes[cell] = false end

local function write()
  -- Texts of numbers are made once: they cost more than most commands.
  local moment = next(changes) and text(time)
  for cell, change in pairs(changes) do
    local key = KEYS[cell]
    if change then
      local version = versions[cell] < time and moment or text(versions[cell] + 1)
      local lives = math.max(1, math.ceil(change[2] / 1000))
      call('SET', key, version .. ' ' .. change[1], 'PX', lives)
    else
      call('DEL', key)
    end
    call('PUBLISH', 'leasehold:changed:' .. key, '')
  end
end

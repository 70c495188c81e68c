-- Runs the twin of a rule on values and at a time that are given. ARGV: the time, the number of
-- cells, the value of each in hexadecimal digits or `-`, and the arguments of the twin in such
-- digits. The reply is who has decided (script or shortcut), the answer, and what becomes of each
-- cell, line by line.
local function from_hex(text)
  return (string.gsub(text, '..', function(digits) return string.char(tonumber(digits, 16)) end))
end
local function to_hex(bytes)
  return (string.gsub(bytes, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

local now, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local values, arguments, changes = {}, {}, {}
for cell = 1, count do
  local value = ARGV[2 + cell]
  values[cell] = value ~= '-' and from_hex(value)
end
for index = count + 3, #ARGV do arguments[#arguments + 1] = from_hex(ARGV[index]) end
local function put(cell, bytes, lives)
  changes[cell] = string.format('put %s %.0f', to_hex(bytes), lives)
end
local function delete(cell) changes[cell] = 'delete' end

if count == 1 then
  local value, answer, bytes, lives = values[1]
  -- SHORTCUT
  if answer then
    if bytes then put(1, bytes, lives) end
    return table.concat({ 'shortcut', to_hex(answer), changes[1] or 'keep' }, '\n')
  end
end

local function step(values, now, arguments, put, delete)
  -- SCRIPT
end
local lines = { 'script', to_hex(step(values, now, arguments, put, delete)) }
for cell = 1, count do lines[#lines + 1] = changes[cell] or 'keep' end
return table.concat(lines, '\n')

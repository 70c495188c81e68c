-- Changes the capacity of a name for everybody. ARGV: family, declared, capacity.
local declared, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])

local function resize()
  expire()
  if not agrees(declared) then
    believe_until()
    advance()
    if in_use() then return { REFUSED, CAPACITY, state.capacity, declared } end
    state.declared = declared
  end
  state.capacity = capacity
  advance()
  return { GRANTED, 0, 0 }
end

local answer = resize()
settle()
return answer

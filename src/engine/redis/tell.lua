local function text(number)
  return string.format('%.0f', number)
end

-- Tells a client something: one that `listens` where the name is, there; if it does not hear, or has not said so, by the channel that
-- goes to every member of a cluster.
local function tell(seat, listens, message)
  local channel = 'leasehold:seat:' .. seat
  local heard = listens == 's' and redis.pcall('SPUBLISH', channel .. ':' .. STATE, message)
  if type(heard) == 'number' and heard > 0 then return end
  call('PUBLISH', channel, message)
end

local function tell_of_grant(owner, seat, listens, token, tokens, round)
  tell(seat, listens, 'g ' .. owner .. ' ' .. token .. ' ' .. tokens .. ' ' .. round)
end

-- What the scripts that change a name begin with: its keys, the time, and how clients are told.
-- KEYS: holder, token, state, ends, queue, log. ARGV[1] starts with the family.

local HOLDER, TOKEN, STATE, ENDS, QUEUE, LOG = unpack(KEYS)
local WHOLE = 4294967295
local HOUR = 3600000000
-- How long a waiter is believed to live after it asked, and how long a grant waits for its owner
-- to confirm it.
local PATIENCE = 5000000
local CONFIRM = 3000000
-- While others wait, the holder's key outlives the lease by this much, so that they come before a
-- newcomer.
local GRACE = 10000000
-- While a lock has a state, its counter is lower by this much. It is then below zero, and whoever
-- finds the lock free for the moment sees that the rules must decide: see take.lua.
local BELOW = 9007199254740992

local call = redis.call
local clock = call('TIME')
-- As a text too: formatting a number costs more than most commands.
local moment = clock[1] .. (#clock[2] == 6 and clock[2] or string.sub('00000' .. clock[2], -6))
local now = tonumber(moment)

local function text(number)
  return string.format('%d', number)
end

-- Sends a message to a client. If it `listens` to the sharded channel of the name, the message goes
-- there. If nobody hears it there, it goes by the channel that reaches every member of a cluster.
local function tell(seat, listens, message)
  local channel = 'leasehold:seat:' .. seat
  local heard = listens == 's' and redis.pcall('SPUBLISH', channel .. ':' .. STATE, message)
  if type(heard) == 'number' and heard > 0 then return end
  call('PUBLISH', channel, message)
end

local function tell_of_grant(owner, seat, listens, token, tokens, round)
  tell(seat, listens, 'g ' .. owner .. ' ' .. token .. ' ' .. tokens .. ' ' .. round)
end

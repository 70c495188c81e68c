-- What the scripts that change a name have in common.

local HOLDER, TOKEN, STATE, ENDS, QUEUE, LOG = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
-- How the holder's key starts. The next letter says where the rest is: a space if all that is known of the name stands here; `+` if
-- there is a queue of such as want all of it too, `?` if moreover the holder has not said yet that it knows; `:` if there is
-- more to it, in the state.
local MARK = 'leasehold/1'
local WHOLE = 4294967295
local HOUR = 3600000000
-- How long a waiter is believed to live after it asked, and how long a grant waits for its owner to confirm it.
local PATIENCE = 5000000
local CONFIRM = 3000000
-- While others wait, the holder's key outlives the lease by this much, so that they come before a newcomer.
local GRACE = 10000000
-- While a lock has a state its counter stands this much lower, below zero, and does not count: whoever takes a lock that is free
-- only for the moment sees there that others come first.
local BELOW = 9007199254740992

local call = redis.call
local clock = call('TIME')
-- The time as a text, too. To write a number costs more than most commands.
local moment = clock[1] .. (#clock[2] == 6 and clock[2] or string.sub('00000' .. clock[2], -6))
local now = tonumber(moment)

-- Notes that a waiter lives, if it still waits.
update :queue set alive_until = $3 where name_key = $1 and place = $2

-- Notes that a waiter lives.
update :queue q set alive_until = $3
from (select :locks, :soon) c
where q.key = $1 and q.place = $2

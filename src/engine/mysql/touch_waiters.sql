-- Notes that waiters live, if the row of their name was written just before, in the same transaction.
update ($3) w straight_join :queue q on q.name_key = $1 and q.place = w.place
set q.alive_until = w.alive_until
where exists (select 1 from :names n where n.name_key = $1 and n.version = $2)

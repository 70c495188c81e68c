-- Inserts waiters if the row of their name was written just before, in the same transaction.
insert into :queue (name_key, place, owner, alive_until, waiter)
select w.name_key, w.place, w.owner, w.alive_until, w.waiter from ($3) w
where exists (select 1 from :names n where n.name_key = $1 and n.version = $2)

-- Deletes waiters if the row of their name was written just before, in the same transaction.
delete from :queue
where name_key = $1 and place in ($3)
  and exists (select 1 from :names n where n.name_key = $1 and n.version = $2)

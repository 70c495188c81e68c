-- Deletes the waiters of a name that says that it has none: its row was deleted by hand.
delete from :queue q
where q.key = $1
  and not exists (select from :names n where n.key = $1 and n.version is distinct from $2)

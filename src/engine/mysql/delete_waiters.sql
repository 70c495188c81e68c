-- Deletes the waiters of a name that says that it has none: its row was deleted by hand. The row is
-- locked first, because the two tables are not read at the same moment.
start transaction;
select version from :names where name_key = $1 for update;
delete from :queue
where name_key = $1
  and not exists (select 1 from :names n where n.name_key = $1 and not n.version <=> $2);
commit

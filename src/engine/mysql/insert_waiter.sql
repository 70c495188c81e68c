-- Inserts a waiter if the row of its name was written just before, in the same transaction. A statement
-- for each, as in write_cell.sql.
insert into :queue (name_key, place, owner, alive_until, waiter)
select $1, $3, $4, $5, $6 from dual
where exists (select 1 from :names n where n.name_key = $1 and n.version = $2)

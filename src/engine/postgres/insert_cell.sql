-- Inserts a cell if there is no row of it.
insert into :cells (key, version, changed_at, expires, bytes)
select $1, $2, $3, $4, $5 from (select :locks, :flushed) x
on conflict (key) do nothing
returning key

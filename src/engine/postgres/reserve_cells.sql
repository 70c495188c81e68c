-- Makes rows for cells that have none, so that they can be compared. Version 0 is no value.
insert into :cells (key, version, changed_at, expires, bytes)
select w.key, 0, 0, 0, '' from unnest($1) as w (key), (select :locks, :soon) x
order by w.key
on conflict (key) do nothing

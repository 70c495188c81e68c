-- Inserts the row of a name if there is still none. `$2` is not used.
insert into :names (key, version, at, last, idle_after, first_token, last_token, ends, record)
select $1, $3, $4, $5, $6, $7, $8, $9, $10
from (select :locks, :durability, :now as now) c
where ($11 is null or c.now <= $11) and $2 is null
on conflict (key) do nothing
returning key

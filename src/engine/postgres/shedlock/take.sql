-- Takes a name that is free, or that this owner has. `excluded` is from before a wait for the row,
-- so the time is read again.
insert into :table as t (name, lock_until, locked_at, locked_by)
select $1, c.utc + $4 * interval '1 microsecond', c.utc, $3
from (select :locks, :flushed, :utc as utc, :now as now) c
where c.now <= $5
on conflict (name) do update set
  lock_until = :utc + $4 * interval '1 microsecond',
  locked_at = case when t.lock_until > :utc then t.locked_at else :utc end,
  locked_by = excluded.locked_by
where (t.lock_until <= :utc or left(t.locked_by, :mark) = $2) and :now <= $5
returning :now

-- Takes a name that nobody uses. The numbers are relative to `at`, the time at which this is done.
-- `excluded` is from before a wait for the row, so the time is read again.
insert into :names as n (key, version, at, last, idle_after, first_token, last_token, ends, record)
select $1, $2, c.now, $3, $4, $5, $6, $7, $8
from (select :locks, :flushed, :now as now) c
where c.now <= $9
on conflict (key) do update set
  version = excluded.version, at = :now, last = excluded.last, idle_after = excluded.idle_after,
  first_token = excluded.first_token, last_token = excluded.last_token, ends = excluded.ends,
  record = excluded.record
where n.at + n.idle_after <= :now and n.at + n.last <= :now and :now <= $9
returning n.at

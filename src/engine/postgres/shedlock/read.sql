-- A row, if there is one, and the time.
select t.name::text, (date_part('epoch', t.lock_until) * 1000000)::bigint,
  (date_part('epoch', t.locked_at) * 1000000)::bigint, t.locked_by::text, c.now
from (select :now as now) c left join :table t on t.name = $1

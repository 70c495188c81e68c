-- A row, if there is one, and the time.
select t.name, timestampdiff(microsecond, '1970-01-01', t.lock_until),
  timestampdiff(microsecond, '1970-01-01', t.locked_at), t.locked_by, c.now
from (select :now as now) c left join :table t on t.name = $1

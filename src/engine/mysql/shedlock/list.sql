-- The names that are held, in order of their bytes, and the time.
select t.name, timestampdiff(microsecond, '1970-01-01', t.lock_until),
  timestampdiff(microsecond, '1970-01-01', t.locked_at), t.locked_by, c.now
from (select :now as now) c left join (
  select * from :table
  where lock_until > :utc and left(cast(name as binary), length($1)) = $1 and cast(name as binary) > $2
  order by cast(name as binary) limit $3
) t on true
order by cast(t.name as binary)

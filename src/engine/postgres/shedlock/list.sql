-- The names that are held, in order of their bytes, and the time.
select t.name::text, (date_part('epoch', t.lock_until) * 1000000)::bigint,
  (date_part('epoch', t.locked_at) * 1000000)::bigint, t.locked_by::text, c.now
from (select :now as now) c left join (
  select * from :table
  where lock_until > :utc and starts_with(name, $1) and ($2::text is null or name collate "C" > $2)
  order by name collate "C" limit $3
) t on true
order by t.name collate "C"

-- Deletes, of the next so many cells, those that expired a minute ago and whose versions are all in the
-- past. Gives the last key that was looked at, if there may be more.
with seen as (
  select c.key, c.version, c.expires, t.old
  from (select :now - 60000000 as old) t, :cells c
  where c.key >= $1
  order by c.key
  limit $2
), gone as (
  delete from :cells c using seen s, (select :locks, :soon) x
  where c.key = s.key and c.version = s.version and s.expires <= s.old and s.version <= s.old
)
select (select s.key from seen s order by s.key offset $2 - 1 limit 1) as last

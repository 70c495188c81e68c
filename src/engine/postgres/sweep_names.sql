-- Deletes, of the next so many names, those that have been idle for a minute and whose tokens are all
-- in the past. Gives the last key that was looked at, if there may be more, and the keys of old rows
-- that only a rule can judge.
with seen as (
  select n.key, n.version, n.at + n.last as last, n.at + n.idle_after as idle_from, t.old
  from (select :now - 60000000 as old) t, :names n
  where n.key >= $1
  order by n.key
  limit $2
), gone as (
  delete from :names n using seen s, (select :locks, :soon) c
  where n.key = s.key and n.version = s.version and s.idle_from <= s.old and s.last <= s.old
)
select
  (select s.key from seen s order by s.key offset $2 - 1 limit 1) as last,
  array(select s.key from seen s where s.idle_from is null and s.last <= s.old) as unclear

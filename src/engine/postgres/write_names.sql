-- Replaces the rows of many names, where they are still those that were read and nobody has them
-- locked. Locked in the order of their keys, so that two of these do not wait for each other.
with w as (
  select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    as w (key, expected, version, last, idle_after, first_token, last_token, ends, record)
), held as (
  select n.key from :names n join w on n.key = w.key and n.version = w.expected
  order by n.key
  for no key update of n skip locked
)
update :names n
set version = w.version, at = 0, last = w.last, idle_after = w.idle_after,
  first_token = w.first_token, last_token = w.last_token, ends = w.ends, record = w.record
from w, held, (select :locks, :flushed) c
where n.key = held.key and w.key = held.key
returning n.key

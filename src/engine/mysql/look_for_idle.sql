-- The next so many names: whether they have been idle for a minute with all their tokens in the past,
-- and whether only a rule can tell.
select n.name_key,
  coalesce(n.at + n.idle_after <= :now - 60000000 and n.at + n.last <= :now - 60000000, 0),
  coalesce(n.idle_after is null and n.at + n.last <= :now - 60000000, 0)
from :names n where n.name_key >= $1 order by n.name_key limit $2

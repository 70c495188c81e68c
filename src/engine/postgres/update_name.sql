-- Replaces the row of a name if it is still the one that was read.
update :names n
set version = $3, at = $4, last = $5, idle_after = $6, first_token = $7, last_token = $8,
  ends = $9, record = $10
from (select :locks, :durability) c
where n.key = $1 and n.version = $2 and ($11 is null or :now <= $11)
returning n.key

-- Makes a name idle that is still as its owner wrote it.
update :names n
set version = $3, at = 0, last = $4, idle_after = 0, first_token = null, last_token = null,
  ends = null, record = null
from (select :locks, :soon) c
where n.key = $1 and n.version = $2

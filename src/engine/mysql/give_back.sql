-- Makes a name idle that is still as its owner wrote it.
update :names
set version = $3, at = 0, last = $4, idle_after = 0, first_token = null, last_token = null,
  ends = null, record = null
where name_key = $1 and version = $2

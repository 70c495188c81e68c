-- Replaces the row of a name if it is still the one that was read.
update :names
set version = $3, at = $4, last = $5, idle_after = $6, first_token = $7, last_token = $8, ends = $9,
  record = $10
where name_key = $1 and version = $2 and :now <= $11

-- Replaces the value of a cell, in a transaction of the caller's, if it starts with certain bytes.
update :cells c
set bytes = $1, expires = :now + $2, version = greatest(c.version + 1, :now),
  changed_at = greatest(c.changed_at, :now)
where c.key = $3 and substring(c.bytes from 1 for 25) = $4 and c.expires > :now

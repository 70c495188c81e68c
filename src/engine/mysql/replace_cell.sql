-- Replaces the value of a cell, in a transaction of the caller's, if it starts with certain bytes.
update :cells
set bytes = ?, expires = :now + ?, version = greatest(version + 1, :now),
  changed_at = greatest(changed_at, :now)
where name_key = ? and substring(bytes, 1, 25) = ? and expires > :now

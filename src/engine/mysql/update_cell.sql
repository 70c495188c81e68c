-- Writes a cell if it is at the version that was read.
update :cells set version = $3, changed_at = $4, expires = $5, bytes = $6
where name_key = $1 and version = $2

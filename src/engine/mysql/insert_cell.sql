-- Writes a cell that has no row. If there is one by now, this is an error.
insert into :cells (name_key, version, changed_at, expires, bytes) values ($1, $3, $4, $5, $6)

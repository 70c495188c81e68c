-- Writes a cell that has no row, in a transaction of the caller's.
insert into :cells (key, version, changed_at, expires, bytes)
values ($1, :now, :now, :now + $2, $3)

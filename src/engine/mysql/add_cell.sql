-- Writes a cell that has no row, in a transaction of the caller's.
insert into :cells (name_key, version, changed_at, expires, bytes)
values (?, :now, :now, :now + ?, ?)

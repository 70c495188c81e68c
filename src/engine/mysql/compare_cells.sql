-- Locks cells, and counts those that are at the versions that were read. A cell that has no row gets one
-- first, with version 0, so that it can be locked.
start transaction;
insert into :cells (name_key, version, changed_at, expires, bytes)
select w.name_key, 0, 0, 0, '' from ($1) w where w.expected = 0 order by w.name_key
on duplicate key update :cells.version = :cells.version;
select count(*) into @leasehold_held from ($1) w
straight_join :cells c on c.name_key = w.name_key and c.version = w.expected for update

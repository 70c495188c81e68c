-- Writes one of the cells that were compared, if all of them were as expected. A statement for each: in a
-- derived table of literals, MariaDB would keep 65,535 bytes of a value at most, and say nothing.
update :cells set version = $3, changed_at = $4, expires = $5, bytes = $6
where name_key = $1 and @leasehold_held = $2

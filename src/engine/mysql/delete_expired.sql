-- Deletes cells that have not been written again.
delete from :cells
where name_key in ($1) and expires <= :now - 60000000 and version <= :now - 60000000

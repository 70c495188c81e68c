-- The time, and the rows of cells that are there: all at one moment, because it is one statement.
select 0 as kind, null as name_key, :now as version, 0 as changed_at, 0 as expires, null as bytes from dual
union all
select 1, c.name_key, c.version, c.changed_at, c.expires, c.bytes from :cells c where c.name_key in ($1)

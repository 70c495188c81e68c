-- The time, and the rows of names that are there.
select 0 as kind, null as name_key, :now as version, 0 as at, 0 as last, null as record from dual
union all
select 1, n.name_key, n.version, n.at, n.last, n.record from :names n where n.name_key in ($1)

-- The next so many cells: whether they expired a minute ago with all their versions in the past.
select c.name_key, coalesce(c.expires <= :now - 60000000 and c.version <= :now - 60000000, 0)
from :cells c where c.name_key >= $1 order by c.name_key limit $2

-- The rows of many names, with the time.
select n.key, n.version, n.at, n.last, n.record, t.now
from (select :now as now) t left join :names n on n.key = any($1)

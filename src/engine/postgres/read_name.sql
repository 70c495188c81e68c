-- The row of a name with the time, its first waiters, and the asker's own row.
select 0 as kind, n.version as a, n.at as b, n.last as c, n.record as bytes, t.now
from (select :now as now) t left join :names n on n.key = $1
union all
(select 1, q.place, q.alive_until, 0, q.waiter, 0 from :queue q
 where q.key = $1 order by q.place limit $2)
union all
(select 2, q.place, q.alive_until, 0, q.waiter, 0 from :queue q
 where q.key = $1 and q.owner = $3)

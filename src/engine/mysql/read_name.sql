-- The time, the row of a name, its first waiters, and the asker's own row: all at one moment, because
-- it is one statement.
select 0 as kind, :now as a, 0 as b, 0 as c, null as bytes from dual
union all
select 1, n.version, n.at, n.last, n.record from :names n where n.name_key = $1
union all
(select 2, q.place, q.alive_until, 0, q.waiter from :queue q
 where q.name_key = $1 order by q.place limit $2)
union all
(select 3, q.place, q.alive_until, 0, q.waiter from :queue q
 where q.name_key = $1 and q.owner = $3)

-- The time, and names that may be in use, in order.
select 0 as kind, null as name_key, :now as version, 0 as at, 0 as last, null as record from dual
union all
(select 1, n.name_key, n.version, n.at, n.last, n.record from :names n
 where n.name_key >= $1 and n.name_key < $2 and n.record is not null
   and (n.idle_after is null or n.at + n.idle_after > :now)
 order by n.name_key limit $3)

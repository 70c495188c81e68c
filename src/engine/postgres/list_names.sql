-- Names that may be in use, in order.
select n.key, n.version, n.at, n.last, n.record, :now as now
from :names n
where n.key >= $1 and n.key < $2 and n.record is not null
  and (n.idle_after is null or n.at + n.idle_after > :now)
order by n.key
limit $3

-- Cells that have not expired, in order.
select c.key from :cells c
where c.key >= $1 and c.key < $2 and c.expires > :now
order by c.key
limit $3

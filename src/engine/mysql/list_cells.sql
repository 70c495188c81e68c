-- Cells that have not expired, in order.
select c.name_key from :cells c
where c.name_key >= $1 and c.name_key < $2 and c.expires > :now
order by c.name_key limit $3

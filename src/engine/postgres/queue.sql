-- Writes a name as `:write` does and, only if that was done, changes its queue.
with written as (
  :write
), inserted as (
  insert into :queue (key, place, owner, alive_until, waiter)
  select w.key, i.place, i.owner, i.alive_until, i.waiter
  from written w, unnest($13, $14, $15, $16) as i (place, owner, alive_until, waiter)
), touched as (
  update :queue q set alive_until = t.alive_until
  from written w, unnest($17, $18) as t (place, alive_until)
  where q.key = w.key and q.place = t.place
), deleted as (
  delete from :queue q using written w, unnest($19) as d (place)
  where q.key = w.key and q.place = d.place
)
select key from written

-- Cells in the order in which they are named, with the time.
select w.place, c.version, c.changed_at, c.expires, c.bytes, t.now
from (select :now as now) t,
  unnest($1) with ordinality as w (key, place) left join :cells c on c.key = w.key

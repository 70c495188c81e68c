-- Writes cells if all of them are at the versions that were read. A cell without a new version is only
-- compared.
with w as (
  select w.* from (select :locks, :flushed) x,
    unnest($1, $2, $3, $4, $5, $6) as w (key, expected, version, changed_at, expires, bytes)
), held as (
  select c.key from :cells c join w on c.key = w.key and c.version = w.expected
  order by c.key
  for no key update of c
), written as (
  update :cells c
  set version = w.version, changed_at = w.changed_at, expires = w.expires, bytes = w.bytes
  from w
  where c.key = w.key and w.version is not null
    and (select count(*) from held) = cardinality($1)
)
select count(*) from held

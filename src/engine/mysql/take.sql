-- Takes a name that nobody uses. The numbers are relative to `at`, the time at which this is done.
-- A name that is in use is seen without a lock, so that nobody waits for whoever has locked its row.
-- Assignments are made from left to right. The first one decides; the others ask whether it has: nobody
-- else writes this version. The count of affected rows is not asked, because it depends on the driver.
insert into :names (name_key, version, at, last, idle_after, first_token, last_token, ends, record)
select $1, $2, :now, $3, $4, $5, $6, $7, $8 from dual
where :now <= $9 and not exists (
  select 1 from :names n where n.name_key = $1
    and coalesce(n.at + n.idle_after > :now or n.at + n.last > :now, true))
on duplicate key update
  version = if(at + idle_after <= :now and at + last <= :now, $2, version),
  at = if(version = $2, :now, at),
  last = if(version = $2, $3, last),
  idle_after = if(version = $2, $4, idle_after),
  first_token = if(version = $2, $5, first_token),
  last_token = if(version = $2, $6, last_token),
  ends = if(version = $2, $7, ends),
  record = if(version = $2, $8, record);
select at from :names where name_key = $1 and version = $2

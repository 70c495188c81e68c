-- Takes a name that is free, or that this owner has. A name that is held is seen without a lock, so
-- that nobody waits for whoever has locked its row. Assignments are made from left to right. The
-- first one decides; the others ask whether it has: nobody else writes this text.
-- The clock is cut to milliseconds, so a lease gets one more.
insert into :table (name, lock_until, locked_at, locked_by)
select $1, timestampadd(microsecond, $4, :utc), :utc, $3 from dual
where :now <= $5 and not exists (
  select 1 from :table t where t.name = $1 and t.lock_until > :utc and left(t.locked_by, :mark) <> $2)
on duplicate key update
  locked_by = if(lock_until <= :utc or left(locked_by, :mark) = $2, $3, locked_by),
  locked_at = if(locked_by = $3 and lock_until <= :utc, :utc, locked_at),
  lock_until = if(locked_by = $3, timestampadd(microsecond, $4, :utc), lock_until);
select :now from :table where name = $1 and left(locked_by, :mark) = $2 and lock_until > :utc

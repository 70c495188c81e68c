-- Extends the lease of an owner, and says whether it has one. How many rows were changed is not
-- asked: a driver may not count one that was as it is now.
update :table set lock_until = timestampadd(microsecond, $3, :utc)
where name = $1 and left(locked_by, :mark) = $2 and lock_until > :utc;
select 1 from :table where name = $1 and left(locked_by, :mark) = $2 and lock_until > :utc

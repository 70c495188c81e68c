-- Gives a name back. It stays closed until it was held for long enough, and is nobody's then.
update :table
set lock_until = greatest(:utc, timestampadd(microsecond, $3, locked_at)),
  locked_by = concat('released ', locked_by)
where name = $1 and left(locked_by, :mark) = $2 and lock_until > :utc

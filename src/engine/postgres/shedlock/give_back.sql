-- Gives a name back. It stays closed until it was held for long enough, and is nobody's then.
update :table t set lock_until = greatest(:utc, t.locked_at + $3 * interval '1 microsecond'),
  locked_by = 'released ' || t.locked_by
from (select :locks, :soon) c
where t.name = $1 and left(t.locked_by, :mark) = $2 and t.lock_until > :utc

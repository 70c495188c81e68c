-- Extends the lease of an owner.
update :table t set lock_until = :utc + $3 * interval '1 microsecond'
from (select :locks, :flushed) c
where t.name = $1 and left(t.locked_by, :mark) = $2 and t.lock_until > :utc

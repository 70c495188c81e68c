-- Ends the lease of whoever is known by a text.
update :table t set lock_until = :utc
from (select :locks, :flushed) c
where t.name = $1 and t.locked_by = $2 and t.lock_until > :utc

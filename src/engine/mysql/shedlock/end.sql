-- Ends the lease of whoever is known by a text.
update :table set lock_until = :utc where name = $1 and locked_by = $2 and lock_until > :utc

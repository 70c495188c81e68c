-- Deletes names that are still idle.
delete from :names
where name_key in ($1) and at + idle_after <= :now - 60000000 and at + last <= :now - 60000000

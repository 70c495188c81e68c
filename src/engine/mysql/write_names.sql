-- Replaces the rows of many names where they are still those that were read, and says which versions
-- there are now.
update ($1) w straight_join :names n on n.name_key = w.name_key and n.version = w.expected
set n.version = w.version, n.at = w.at, n.last = w.last, n.idle_after = w.idle_after,
  n.first_token = w.first_token, n.last_token = w.last_token, n.ends = w.ends, n.record = w.record;
select name_key, version from :names where name_key in ($2)

-- Gives a row if a token is that of the claim that has the whole name now, and keeps the row as it is
-- until the caller's transaction ends. `for key share` would not: a change of holders changes no key.
select 1 as held
from :names n
where n.key = $1 and n.at + n.first_token <= $2 and n.at + n.last_token >= $2
  and n.at + n.ends > :now
for share

-- Writes the row of a name that has none. If there is one by now, this is an error.
insert into :names (name_key, version, at, last, idle_after, first_token, last_token, ends, record)
select $1, $3, $4, $5, $6, $7, $8, $9, $10 from dual where :now <= $11

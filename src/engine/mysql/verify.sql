-- Gives a row if a token is that of the claim that has the whole name now, and keeps the row as it is
-- until the caller's transaction ends.
select :what as held from :names
where name_key = ? and cast(? as signed) - at between first_token and last_token and at + ends > :now
lock in share mode

-- Which names nobody else has locked at this moment.
select name_key from :names where name_key in ($1) for update skip locked

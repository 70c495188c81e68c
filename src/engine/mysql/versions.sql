-- Which versions the rows of names have now.
select name_key, version from :names where name_key in ($1)

-- Most scripts are told the family first, then the owner, and last the owner's token if it is known.
local family, asker, known_token = ARGV[1], ARGV[2], ARGV[#ARGV]

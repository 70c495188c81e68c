-- A script about one name. KEYS: holder, counter, state, ends, queue, gone, member, top, floor.
-- ARGV: owner, stamp, and what the script says.
HOLDER, TOKEN, STATE, ENDS, QUEUE, GONE, MEMBER, TOP, FLOOR = unpack(KEYS)
owner, stamp = ARGV[1], tonumber(ARGV[2])
read_holder()


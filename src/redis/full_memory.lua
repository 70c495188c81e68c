-- A server whose memory is full refuses what could take more of it, unless the script has written
-- something before. What follows gives back, or takes no more than it has, so it must be done. This
-- writes, and changes nothing.
redis.call('HDEL', KEYS[3], '')

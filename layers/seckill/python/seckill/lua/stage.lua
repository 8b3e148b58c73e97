-- stage: put fields of a copy aside until load takes them, with a time to live (docs/protocol.md 3).
--
-- KEYS  1 seckill:{sku}:stage:<epoch>:<random>:held or :buyers
-- ARGV  1 seconds to live, 2... field, value, field, value, ... at most some thousands
-- In one step: a key written and not yet given its time to live would stay for ever.

redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])

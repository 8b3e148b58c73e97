-- catalogue: rewrite the set of the SKUs on offer in one step (docs/protocol.md 3).
--
-- KEYS  1 seckill:catalogue
-- ARGV  the members, the sentinel among them, at most some thousands
-- Answer: how many members it has now.

redis.call('DEL', KEYS[1])
return redis.call('SADD', KEYS[1], unpack(ARGV))

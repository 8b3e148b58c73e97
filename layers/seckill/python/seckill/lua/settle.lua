-- settle(keys): forget the holds of landed reservations (docs/protocol.md 3; only after reading status 2).
--
-- KEYS  1 seckill:{sku}:held
-- ARGV  pre_deduct_keys, at most some hundreds
-- Answer: how many holds were there. A key of another type counts as no copy.

local settled = redis.pcall('HDEL', KEYS[1], unpack(ARGV))
if type(settled) == 'table' then return 0 end
return settled

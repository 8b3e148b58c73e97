-- release(key, user): give a rolled-back key's units back to Redis, once (docs/protocol.md 3; only after reading status 3).
--
-- KEYS  1 seckill:{sku}:sale   2 seckill:{sku}:held   3 seckill:{sku}:buyers
-- ARGV  1 pre_deduct_key   2 user
-- Answers: 1 units given back, 0 nothing was held. A copy that is not whole is left alone: a rebuild replaces it.
-- `buyers` is cleared independently of the hold: a lost hold must not lock the user out (docs/protocol.md 7, O13).

local sale = read_copy(KEYS[1], KEYS[2], KEYS[3])
if not sale then return 0 end

local key, user_field = ARGV[1], 'u:' .. ARGV[2]
local hold = read_hold(KEYS[2], key)
local owned = redis.call('HGET', KEYS[3], user_field)

if hold then
  redis.call('HSET', KEYS[1], 'stock', plain(sale.stock + hold.quantity))
  redis.call('HDEL', KEYS[2], key)
end
if owned == key then redis.call('HDEL', KEYS[3], user_field) end
return hold and 1 or 0

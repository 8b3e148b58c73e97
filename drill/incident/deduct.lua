-- The incident's atomic deduct. This part was right: no unit is sold twice.
-- KEYS[1]  seckill:stock:<sku>, a plain number
-- answer   the stock left after the deduct, or -1: sold out (also when the key is missing, as in the incident)
local stock = tonumber(redis.call('GET', KEYS[1]))
if stock == nil or stock <= 0 then
  return -1
end
return redis.call('DECR', KEYS[1])

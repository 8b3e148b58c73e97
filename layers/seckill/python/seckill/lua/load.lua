-- load: replace a sale's copy by one read from MySQL, all or nothing (docs/protocol.md 3 and 6.4d).
--
-- KEYS  1 seckill:{sku}:sale   2 seckill:{sku}:held   3 seckill:{sku}:buyers
--       4 seckill:{sku}:stage:<epoch>:<random>:held   5 seckill:{sku}:stage:<epoch>:<random>:buyers
--         (staged before, sentinels included, with a TTL)
-- ARGV  1 epoch   2 state   3 stock   4 quantity   5 opens_at or ''   6 closes_at or ''
--       7 fields expected in 4   8 fields expected in 5   9 the largest believable lead of an epoch
-- Answers: 'LOADED'; 'IGNORED' (the copy's epoch is not older); 'INCOMPLETE' (the staged sets are not as expected).
-- A copy whose epoch is further ahead than a believable lead is garbage and counts as missing.

local epoch = tonumber(ARGV[1])
local current = redis.pcall('HGET', KEYS[1], 'epoch')
if type(current) == 'table' then current = nil end
current = integer(current)
-- The same line as next_epoch draws, seen from the epoch after MySQL's.
if current and current >= epoch and current - epoch < tonumber(ARGV[9]) then return 'IGNORED' end

if redis.call('HLEN', KEYS[4]) ~= tonumber(ARGV[7]) or redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[8])
  or redis.call('HGET', KEYS[4], '#epoch') ~= ARGV[1] or redis.call('HGET', KEYS[5], '#epoch') ~= ARGV[1] then
  return 'INCOMPLETE'
end

-- First the one write that a full Redis refuses, on a staged key: if it fails nothing has changed.
redis.call('HSET', KEYS[4], '#epoch', ARGV[1])
redis.call('RENAME', KEYS[4], KEYS[2])
redis.call('RENAME', KEYS[5], KEYS[3])
redis.call('PERSIST', KEYS[2])
redis.call('PERSIST', KEYS[3])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'epoch', ARGV[1], 'stock', ARGV[3], 'ticket', '0',
  'quantity', ARGV[4], 'opens_at', ARGV[5], 'closes_at', ARGV[6])
return 'LOADED'

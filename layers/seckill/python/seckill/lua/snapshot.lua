-- snapshot: the sale and its holds at one moment (docs/protocol.md 3); reads only.
--
-- KEYS  1 seckill:{sku}:sale   2 seckill:{sku}:held   3 seckill:{sku}:buyers
-- ARGV  1 the most holds worth sending in one answer; 0 when only the sale is wanted
-- Answers: {'MISSING'}, {'UNAVAILABLE'} as in reserve, or
--   {'COPY', state, epoch, stock, ticket, quantity, opens_at, closes_at, now_ms, holds, field, value, field, value, ...}
--   with `held` in full, its sentinel left out, when it has no more entries than wanted.

local sale, absent = read_copy(KEYS[1], KEYS[2], KEYS[3])
if absent then return {'MISSING'} end
if not sale then return {'UNAVAILABLE'} end

local holds = redis.call('HLEN', KEYS[2]) - 1
local answer = {
  'COPY', sale.state, plain(sale.epoch), plain(sale.stock), plain(sale.ticket), plain(sale.quantity),
  sale.opens_at, sale.closes_at, plain(now_ms()), holds,
}
if holds <= tonumber(ARGV[1]) then
  local held = redis.call('HGETALL', KEYS[2])
  for i = 1, #held, 2 do
    if held[i] ~= '#epoch' then
      answer[#answer + 1] = held[i]
      answer[#answer + 1] = held[i + 1]
    end
  end
end
return answer

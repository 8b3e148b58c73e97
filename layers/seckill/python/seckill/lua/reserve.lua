-- reserve(key, user): deduct one reservation's units and remember who holds them (docs/protocol.md 3 and 4.2).
--
-- KEYS  1 seckill:{sku}:sale   2 seckill:{sku}:held   3 seckill:{sku}:buyers
-- ARGV  1 pre_deduct_key (fresh)   2 user
-- Answers, the first that applies:
--   {'MISSING'}                      no sale hash: unknown SKU, or a lost copy
--   {'UNAVAILABLE'}                  the copy is not whole
--   {'REPLAY', key, epoch, ticket, quantity}   this user holds `key` already, in every state of the sale; all the key's own
--   {'REPLAY', key, copy_epoch}                the same, when the hold is gone or another user's: the copy's epoch only
--   {'CLOSED'}
--   {'NOT_OPEN', opens_at}           milliseconds since 1970
--   {'SOLD_OUT'}
--   {'WON', key, epoch, ticket, quantity}      deducted: ticket is the number of the reservation's last unit
-- All reads come before the first write, and the first write is one that a full Redis refuses: it changes all or nothing.

local sale, absent = read_copy(KEYS[1], KEYS[2], KEYS[3])
if absent then return {'MISSING'} end
if not sale then return {'UNAVAILABLE'} end

local key, user = ARGV[1], ARGV[2]
local owned = redis.call('HGET', KEYS[3], 'u:' .. user)
if owned then
  local hold = read_hold(KEYS[2], owned)
  if hold and hold.user == user then
    return {'REPLAY', owned, plain(hold.epoch), plain(hold.ticket), plain(hold.quantity)}
  end
  return {'REPLAY', owned, plain(sale.epoch)}
end

local now = now_ms()
if sale.state ~= 'open' then return {'CLOSED'} end
if sale.opens_at ~= '' and now < tonumber(sale.opens_at) then return {'NOT_OPEN', sale.opens_at} end
if sale.closes_at ~= '' and now >= tonumber(sale.closes_at) then return {'CLOSED'} end
if sale.stock < sale.quantity then return {'SOLD_OUT'} end

local ticket = sale.ticket + sale.quantity
-- By hand: cjson writes numbers with 14 digits only.
local hold = '{"user":' .. cjson.encode(user) .. ',"quantity":' .. plain(sale.quantity) .. ',"epoch":' .. plain(sale.epoch)
  .. ',"ticket":' .. plain(ticket) .. ',"ms":' .. plain(now) .. '}'
redis.call('HSET', KEYS[1], 'stock', plain(sale.stock - sale.quantity), 'ticket', plain(ticket))
redis.call('HSET', KEYS[2], key, hold)
redis.call('HSET', KEYS[3], 'u:' .. user, key)
return {'WON', key, plain(sale.epoch), plain(ticket), plain(sale.quantity)}

-- The fenced insert and the causes of its failure (docs/protocol.md 4.3, 4.6).

-- The row appears only if the sale is open, in the key's own epoch, and the key's ticket is one of those that MySQL honours:
-- within cap, on the sale's step and of its quantity (a wrong copy may have dealt with others). The shared lock makes a rebuild wait for it, and it for a rebuild.
-- name: fenced_insert
INSERT INTO seckill_pre_deduct
    (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, created_at, updated_at)
SELECT %(key)s, sku_id, %(user)s, quantity, %(epoch)s, %(ticket)s, 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3)
FROM seckill_sale
WHERE sku_id = %(sku_id)s AND epoch = %(epoch)s AND state = 'open' AND quantity = %(quantity)s
  AND %(ticket)s BETWEEN quantity AND cap AND %(ticket)s %% quantity = 0
LOCK IN SHARE MODE

-- Why nothing was inserted: the sale, the key that has this ticket, the key that this user lives under.
-- name: cause
SELECT s.state, s.epoch, s.cap, s.quantity, t.pre_deduct_key AS ticket_key, u.pre_deduct_key AS live_key
FROM seckill_sale s
LEFT JOIN seckill_pre_deduct t ON t.sku_id = s.sku_id AND t.epoch = %(epoch)s AND t.ticket = %(ticket)s
LEFT JOIN seckill_pre_deduct u ON u.sku_id = s.sku_id AND u.live_user = %(user)s
WHERE s.sku_id = %(sku_id)s

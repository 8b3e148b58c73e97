-- rebuild: a new epoch, and what Redis is loaded with (docs/protocol.md 6.4).

-- name: lock_sale
SELECT sku_id, state, epoch, cap, quantity, opens_at, closes_at,
       rebuilt_at IS NOT NULL AND rebuilt_at > UTC_TIMESTAMP(3) - INTERVAL 30 SECOND AS rebuilt_lately
FROM seckill_sale WHERE sku_id = %s FOR UPDATE

-- One SELECT: two would let a landing slip between them and count its units twice (docs/protocol.md 7, O3).
-- name: unpromised
SELECT s.remaining - COALESCE((SELECT SUM(l.quantity) FROM seckill_pre_deduct l
                               WHERE l.sku_id = s.sku_id AND l.status = 1), 0) AS units
FROM seckill_stock s WHERE s.sku_id = %s

-- name: bump
UPDATE seckill_sale SET epoch = %s, cap = %s, rebuilt_at = UTC_TIMESTAMP(3) WHERE sku_id = %s

-- name: sale
SELECT sku_id, state, epoch, cap, quantity, opens_at, closes_at FROM seckill_sale WHERE sku_id = %s

-- The live rows in pages by user (one live row each): status 1 become holds, 1 and 2 become buyers.
-- name: live_page
SELECT pre_deduct_key, user_id, quantity, epoch, ticket, status,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) DIV 1000 AS created_ms
FROM seckill_pre_deduct
WHERE sku_id = %s AND live_user > %s
ORDER BY live_user LIMIT %s

-- Plain reads of the ledger by which reservations are judged (docs/protocol.md 4.5, 4.6).

-- name: by_key
SELECT pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, reason
FROM seckill_pre_deduct WHERE pre_deduct_key = %s

-- The user's reservation as the HTTP API shows it, with its order if there is one.
-- name: shown_by_key
SELECT l.pre_deduct_key, l.sku_id, l.user_id, l.quantity, l.epoch, l.ticket, l.status, l.reason, o.order_id
FROM seckill_pre_deduct l LEFT JOIN seckill_order o ON o.pre_deduct_key = l.pre_deduct_key
WHERE l.pre_deduct_key = %s

-- This user's live reservation of the sale, else the latest one: keys are time-ordered.
-- name: shown_by_user
SELECT l.pre_deduct_key, l.sku_id, l.user_id, l.quantity, l.epoch, l.ticket, l.status, l.reason, o.order_id
FROM seckill_pre_deduct l LEFT JOIN seckill_order o ON o.pre_deduct_key = l.pre_deduct_key
WHERE l.sku_id = %s AND l.user_id = %s
ORDER BY (l.live_user IS NULL), l.pre_deduct_key DESC LIMIT 1

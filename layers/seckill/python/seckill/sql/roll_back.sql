-- roll back: status 1 -> 3 with a notice, in one transaction (docs/protocol.md 6.1). The sale is locked first (abandon.lock_sale).

-- Skips a row that somebody is landing: waiting for it while holding the sale would stop every reservation.
-- name: lock_row
SELECT pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, reason
FROM seckill_pre_deduct FORCE INDEX (PRIMARY) WHERE pre_deduct_key = %s FOR UPDATE SKIP LOCKED

-- name: order_exists
SELECT order_id FROM seckill_order WHERE pre_deduct_key = %s

-- name: remaining
SELECT remaining FROM seckill_stock WHERE sku_id = %s

-- name: mark_rolled_back
UPDATE seckill_pre_deduct SET status = 3, reason = %s, updated_at = UTC_TIMESTAMP(3)
WHERE pre_deduct_key = %s AND status = 1

-- name: insert_notice
INSERT INTO seckill_notice (pre_deduct_key, user_id, sku_id, reason, created_at)
SELECT pre_deduct_key, user_id, sku_id, reason, UTC_TIMESTAMP(3) FROM seckill_pre_deduct WHERE pre_deduct_key = %s

-- land: order, stock and status in one transaction for a whole batch (docs/protocol.md 5).

-- By the primary key in key order: without the hint MySQL scans a small table and waits for strangers' uncommitted rows.
-- name: lock_rows
SELECT pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, reason
FROM seckill_pre_deduct FORCE INDEX (PRIMARY)
WHERE pre_deduct_key IN %s ORDER BY pre_deduct_key FOR UPDATE

-- name: existing_orders
SELECT pre_deduct_key FROM seckill_order WHERE pre_deduct_key IN %s

-- Short statements: the rows' data stay in the database.
-- name: insert_orders
INSERT INTO seckill_order (pre_deduct_key, sku_id, user_id, quantity, created_at)
SELECT pre_deduct_key, sku_id, user_id, quantity, UTC_TIMESTAMP(3)
FROM seckill_pre_deduct FORCE INDEX (PRIMARY)
WHERE pre_deduct_key IN %s

-- name: mark_landed
UPDATE seckill_pre_deduct FORCE INDEX (PRIMARY) SET status = 2, updated_at = UTC_TIMESTAMP(3)
WHERE pre_deduct_key IN %s AND status = 1

-- The hot row, last of all and in ascending sku_id, so that it is held for the shortest time.
-- name: take_stock
UPDATE seckill_stock SET remaining = remaining - %s WHERE sku_id = %s AND remaining >= %s

-- Changes of a sale, each inside the first transaction of a rebuild, after it has locked the sale (docs/protocol.md 6.5).

-- name: top_up
SELECT sku_id, units FROM seckill_top_up WHERE operation_id = %s

-- name: insert_top_up
INSERT INTO seckill_top_up (operation_id, sku_id, units, created_at) VALUES (%s, %s, %s, UTC_TIMESTAMP(3))

-- name: add_stock
UPDATE seckill_stock SET total = total + %(units)s, remaining = remaining + %(units)s
WHERE sku_id = %(sku_id)s AND total <= %(most)s - %(units)s

-- name: close
UPDATE seckill_sale SET state = 'closed' WHERE sku_id = %s AND state = 'open'

-- A closing time that has passed would close the sale again at once. A sale that is past it, but not closed yet, is reopened
-- like a closed one; an open one is extended or cut short by another closing time.
-- name: reopen
UPDATE seckill_sale
SET state = 'open',
    closes_at = COALESCE(%(closes_at)s, IF(closes_at > UNIX_TIMESTAMP() * 1000, closes_at, NULL))
WHERE sku_id = %(sku_id)s
  AND (state = 'closed'
       OR state = 'open' AND (closes_at <= UNIX_TIMESTAMP() * 1000 OR NOT closes_at <=> COALESCE(%(closes_at)s, closes_at)))

-- name: has_passed
SELECT %s <= UNIX_TIMESTAMP() * 1000 AS has_passed

-- name: archive
UPDATE seckill_sale SET state = 'archived' WHERE sku_id = %s AND state = 'closed'

-- name: pending
SELECT COUNT(*) AS row_count FROM seckill_pre_deduct WHERE sku_id = %s AND status = 1

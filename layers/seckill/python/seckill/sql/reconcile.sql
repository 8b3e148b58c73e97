-- What the reconciler looks for (docs/protocol.md 6.1, 6.2, 6.5). Plain SELECTs: a locking scan deadlocks with landings.

-- A page of rows at 1 older than the stale age, oldest first, after the last one seen. By the database's clock.
-- Either those for which there is stock, or those for which there is too little: apart, so that the latter never fill the pages.
-- name: stale_page
SELECT l.pre_deduct_key, l.sku_id, l.created_at
FROM seckill_pre_deduct l LEFT JOIN seckill_stock k ON k.sku_id = l.sku_id
WHERE l.status = 1 AND l.created_at <= UTC_TIMESTAMP(3) - INTERVAL %(stale_seconds)s SECOND
  AND (l.created_at > %(after_time)s OR (l.created_at = %(after_time)s AND l.pre_deduct_key > %(after_key)s))
  AND (COALESCE(k.remaining, 0) >= l.quantity) = %(in_stock)s
ORDER BY l.created_at, l.pre_deduct_key LIMIT %(page)s

-- One more failure that names this row alone.
-- name: count_retry
UPDATE seckill_pre_deduct SET retry_count = retry_count + 1, updated_at = UTC_TIMESTAMP(3)
WHERE pre_deduct_key = %s AND status = 1

-- name: retry_count
SELECT retry_count FROM seckill_pre_deduct WHERE pre_deduct_key = %s AND status = 1

-- name: statuses
SELECT pre_deduct_key, status FROM seckill_pre_deduct WHERE pre_deduct_key IN %s

-- Sales over for some minutes: late requests have been answered by then.
-- name: overdue
SELECT sku_id FROM seckill_sale
WHERE state = 'open' AND closes_at < UNIX_TIMESTAMP() * 1000 - %s
ORDER BY sku_id

-- name: unsent_notices
SELECT pre_deduct_key, user_id, sku_id, reason FROM seckill_notice WHERE sent_at IS NULL ORDER BY created_at LIMIT %s

-- name: mark_sent
UPDATE seckill_notice SET sent_at = UTC_TIMESTAMP(3) WHERE pre_deduct_key = %s AND sent_at IS NULL

-- The audit's reads (docs/protocol.md 6.6), inside one consistent snapshot of the database.

-- Read before Redis's snapshot: a copy that has dealt fewer tickets than have rows has lost deductions (I5).
-- name: highest_ticket
SELECT s.epoch, COALESCE((SELECT MAX(l.ticket) FROM seckill_pre_deduct l
                          WHERE l.sku_id = s.sku_id AND l.epoch = s.epoch), 0) AS ticket
FROM seckill_sale s WHERE s.sku_id = %s

-- The terms of I0, I1, I2 and of the gap, in units. %(ticket)s is the ticket of Redis's snapshot, taken before: rows of this
-- epoch above it were won later and are left out of I3 and I4. Without a snapshot it is above all tickets.
-- name: accounts
SELECT s.sku_id, s.state, s.epoch, s.cap, s.quantity, s.opens_at, s.closes_at, s.drift_epoch, k.total, k.remaining,
    COALESCE(l.used, 0) AS used, COALESCE(l.reserved, 0) AS reserved, COALESCE(l.landed, 0) AS landed,
    COALESCE(l.rolled_back, 0) AS rolled_back, COALESCE(l.stale, 0) AS stale,
    COALESCE(l.live_seen, 0) AS live_seen, COALESCE(l.rolled_back_later, 0) AS rolled_back_later,
    COALESCE(l.oldest_pending_seconds, 0) AS oldest_pending_seconds,
    (SELECT COALESCE(SUM(o.quantity), 0) FROM seckill_order o WHERE o.sku_id = s.sku_id) AS ordered
FROM seckill_sale s
JOIN seckill_stock k ON k.sku_id = s.sku_id
LEFT JOIN (
    SELECT l.sku_id,
        SUM(IF(l.epoch = e.epoch, l.quantity, 0)) AS used,
        SUM(IF(l.status = 1, l.quantity, 0)) AS reserved,
        SUM(IF(l.status = 2, l.quantity, 0)) AS landed,
        SUM(IF(l.status = 3, l.quantity, 0)) AS rolled_back,
        SUM(IF(l.status = 1 AND l.created_at <= UTC_TIMESTAMP(3) - INTERVAL %(stale_seconds)s SECOND, l.quantity, 0)) AS stale,
        SUM(IF(l.status IN (1, 2) AND NOT (l.epoch = e.epoch AND l.ticket > %(ticket)s), l.quantity, 0)) AS live_seen,
        SUM(IF(l.status = 3 AND l.epoch = e.epoch AND l.ticket > %(ticket)s, l.quantity, 0)) AS rolled_back_later,
        MAX(IF(l.status = 1, TIMESTAMPDIFF(SECOND, l.created_at, UTC_TIMESTAMP(3)), 0)) AS oldest_pending_seconds
    FROM seckill_pre_deduct l JOIN seckill_sale e ON e.sku_id = l.sku_id
    WHERE l.sku_id = %(sku_id)s
    GROUP BY l.sku_id
) l ON l.sku_id = s.sku_id
WHERE s.sku_id = %(sku_id)s

-- Units at 2 without an order of the same quantity (I0).
-- name: landed_without_order
SELECT COALESCE(SUM(l.quantity), 0) AS units
FROM seckill_pre_deduct l LEFT JOIN seckill_order o ON o.pre_deduct_key = l.pre_deduct_key AND o.quantity = l.quantity
WHERE l.sku_id = %s AND l.status = 2 AND o.order_id IS NULL

-- Units of orders whose row is not at 2, or is of another quantity or SKU, or is missing (I0).
-- name: orders_without_landed
SELECT COALESCE(SUM(o.quantity), 0) AS units
FROM seckill_order o LEFT JOIN seckill_pre_deduct l
    ON l.pre_deduct_key = o.pre_deduct_key AND l.quantity = o.quantity AND l.sku_id = o.sku_id AND l.status = 2
WHERE o.sku_id = %s AND l.pre_deduct_key IS NULL

-- Units rolled back without a notice; a tombstone was never promised, so it has none.
-- name: rolled_back_without_notice
SELECT COALESCE(SUM(l.quantity), 0) AS units
FROM seckill_pre_deduct l LEFT JOIN seckill_notice n ON n.pre_deduct_key = l.pre_deduct_key
WHERE l.sku_id = %s AND l.status = 3 AND l.reason <> 'abandoned' AND n.pre_deduct_key IS NULL

-- name: notices_pending
SELECT COUNT(*) AS notices FROM seckill_notice WHERE sku_id = %s AND sent_at IS NULL

-- The epoch in which a soft equation was off, until an equal audit clears it.
-- name: remember_drift
UPDATE seckill_sale SET drift_epoch = %(epoch)s, drift_since = UTC_TIMESTAMP(3)
WHERE sku_id = %(sku_id)s AND epoch = %(epoch)s AND (drift_epoch IS NULL OR drift_epoch <> %(epoch)s)

-- name: clear_drift
UPDATE seckill_sale SET drift_epoch = NULL, drift_since = NULL WHERE sku_id = %s AND drift_epoch IS NOT NULL

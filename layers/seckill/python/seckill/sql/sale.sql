-- Sales: open, list, and the three accounts of one sale as MySQL has them (docs/protocol.md 6.5).

-- A sale as it was opened: total without the top-ups since.
-- name: as_opened
SELECT s.sku_id, s.state, s.epoch, s.cap, s.quantity, s.opens_at, s.closes_at,
       k.total - COALESCE((SELECT SUM(t.units) FROM seckill_top_up t WHERE t.sku_id = s.sku_id), 0) AS opened_total
FROM seckill_sale s JOIN seckill_stock k ON k.sku_id = s.sku_id
WHERE s.sku_id = %s

-- name: insert_sale
INSERT INTO seckill_sale (sku_id, state, epoch, cap, quantity, opens_at, closes_at) VALUES (%s, 'open', %s, %s, %s, %s, %s)

-- name: insert_stock
INSERT INTO seckill_stock (sku_id, total, remaining) VALUES (%s, %s, %s)

-- name: on_offer
SELECT sku_id FROM seckill_sale WHERE state <> 'archived' ORDER BY sku_id

-- One statement, so that its parts belong to one moment.
-- name: accounts
SELECT s.sku_id, s.state, s.epoch, s.cap, s.quantity, s.opens_at, s.closes_at, k.total, k.remaining,
       (SELECT COALESCE(SUM(l.quantity), 0) FROM seckill_pre_deduct l WHERE l.sku_id = s.sku_id AND l.status = 1) AS reserved,
       (SELECT COALESCE(SUM(l.quantity), 0) FROM seckill_pre_deduct l WHERE l.sku_id = s.sku_id AND l.status = 2) AS landed,
       (SELECT COALESCE(SUM(l.quantity), 0) FROM seckill_pre_deduct l WHERE l.sku_id = s.sku_id AND l.status = 3) AS rolled_back,
       (SELECT COALESCE(SUM(o.quantity), 0) FROM seckill_order o WHERE o.sku_id = s.sku_id) AS ordered
FROM seckill_sale s JOIN seckill_stock k ON k.sku_id = s.sku_id
WHERE s.sku_id = %s

-- name: list
SELECT s.sku_id, s.state, s.quantity, s.opens_at, s.closes_at, k.total, k.remaining
FROM seckill_sale s JOIN seckill_stock k ON k.sku_id = s.sku_id
ORDER BY s.sku_id

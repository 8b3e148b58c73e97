-- abandon: give up a key that never got a ledger row (docs/protocol.md 4.7). One transaction; never changes an existing row.

-- name: lock_sale
SELECT sku_id, state, epoch, cap, quantity, opens_at, closes_at FROM seckill_sale WHERE sku_id = %s FOR UPDATE

-- A tombstone carries the key's own epoch and ticket: the ticket is spent and its unit comes back as a new one (cap).
-- name: tombstone
INSERT INTO seckill_pre_deduct
    (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, reason, created_at, updated_at)
VALUES (%s, %s, %s, %s, %s, %s, 3, 'abandoned', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))

-- name: extend_cap
UPDATE seckill_sale SET cap = cap + %s WHERE sku_id = %s

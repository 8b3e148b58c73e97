-- What the books remember of one reservation, and since when: for a person who follows it.

-- name: ledger
SELECT sku_id, quantity, epoch, ticket, status, reason, retry_count, created_at, updated_at
FROM seckill_pre_deduct WHERE pre_deduct_key = %s

-- name: order
SELECT order_id, sku_id, quantity, created_at FROM seckill_order WHERE pre_deduct_key = %s

-- name: notice
SELECT sku_id, reason, created_at, sent_at FROM seckill_notice WHERE pre_deduct_key = %s

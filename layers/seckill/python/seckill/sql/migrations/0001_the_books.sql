-- The books: six tables, docs/protocol.md 3. Plain SQL of MySQL 8.0 to 9.x and MariaDB 10.6+.
--
-- Rules behind the columns:
--   * All times are the database's clock in UTC, DATETIME(3) by UTC_TIMESTAMP(3). A sale's opening times are given from outside
--     and compared by Redis, so they are milliseconds since 1970.
--   * Keys and users are VARBINARY: text collations fold case (`A` = `a`) or pad spaces (`pad` = `pad `).
--   * Every index is made with its table, and ledger rows are only ever written by plain INSERT or INSERT ... SELECT.
--   * No foreign key to seckill_sale: its lock is the fence between reservations and a rebuild, nothing else may take it.

-- One SKU on offer. epoch: the generation of Redis's copy; cap: how many ticket numbers of this epoch are honoured.
-- After every transaction: cap - units of the epoch with any ledger row + units at status 1 and 2 = total (I1).
CREATE TABLE IF NOT EXISTS seckill_sale (
    sku_id      BIGINT      NOT NULL PRIMARY KEY,
    state       VARCHAR(8)  NOT NULL,
    epoch       BIGINT      NOT NULL,
    cap         BIGINT      NOT NULL,
    quantity    INT         NOT NULL DEFAULT 1,  -- units per reservation, fixed for the sale
    opens_at    BIGINT      NULL,
    closes_at   BIGINT      NULL,
    rebuilt_at  DATETIME(3) NULL,                -- the last automatic rebuild: at most one per 30 s
    drift_epoch BIGINT      NULL,                -- a soft equation was off in this epoch, first seen at drift_since
    drift_since DATETIME(3) NULL,
    CONSTRAINT seckill_sale_state CHECK (state IN ('open', 'closed', 'archived')),
    CONSTRAINT seckill_sale_cap CHECK (cap >= 0),
    CONSTRAINT seckill_sale_quantity CHECK (quantity >= 1)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The hot row of each sale: remaining + units of orders = total (I2).
CREATE TABLE IF NOT EXISTS seckill_stock (
    sku_id    BIGINT NOT NULL PRIMARY KEY,
    total     BIGINT NOT NULL,
    remaining BIGINT NOT NULL,
    CONSTRAINT seckill_stock_remaining CHECK (remaining >= 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The ledger: one row per reservation. status 1 reserved -> 2 landed | 3 rolled back; a tombstone starts at 3. 2 and 3 are final.
-- ticket: the number of the reservation's last unit within its epoch; on the sale's step, so that no two ranges overlap.
CREATE TABLE IF NOT EXISTS seckill_pre_deduct (
    pre_deduct_key VARBINARY(36)  NOT NULL PRIMARY KEY,
    sku_id         BIGINT         NOT NULL,
    user_id        VARBINARY(512) NOT NULL,
    quantity       INT            NOT NULL,
    epoch          BIGINT         NOT NULL,
    ticket         BIGINT         NOT NULL,
    status         TINYINT        NOT NULL,
    reason         VARCHAR(200)   NULL,
    retry_count    INT            NOT NULL DEFAULT 0,
    created_at     DATETIME(3)    NOT NULL,
    updated_at     DATETIME(3)    NOT NULL,
    live_user      VARBINARY(512) GENERATED ALWAYS AS (IF(status IN (1, 2), user_id, NULL)) VIRTUAL,
    UNIQUE KEY one_row_per_ticket (sku_id, epoch, ticket),
    UNIQUE KEY one_live_row_per_user (sku_id, live_user),
    KEY stale_scan (status, created_at),
    KEY sums (sku_id, status, quantity),
    KEY latest_of_user (sku_id, user_id, pre_deduct_key),
    CONSTRAINT seckill_pre_deduct_status CHECK (status IN (1, 2, 3)),
    CONSTRAINT seckill_pre_deduct_ticket CHECK (quantity >= 1 AND ticket >= quantity AND ticket % quantity = 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The orders: at most one per key.
CREATE TABLE IF NOT EXISTS seckill_order (
    order_id       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    pre_deduct_key VARBINARY(36)  NOT NULL,
    sku_id         BIGINT         NOT NULL,
    user_id        VARBINARY(512) NOT NULL,
    quantity       INT            NOT NULL,
    created_at     DATETIME(3)    NOT NULL,
    UNIQUE KEY one_order_per_key (pre_deduct_key),
    KEY sums (sku_id, quantity)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Outbox of roll-back notices: one per key, published at least once, marked when sent.
CREATE TABLE IF NOT EXISTS seckill_notice (
    pre_deduct_key VARBINARY(36)  NOT NULL PRIMARY KEY,
    user_id        VARBINARY(512) NOT NULL,
    sku_id         BIGINT         NOT NULL,
    reason         VARCHAR(200)   NOT NULL,
    created_at     DATETIME(3)    NOT NULL,
    sent_at        DATETIME(3)    NULL,
    KEY unsent (sent_at, created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Top-ups already applied: the same operation_id is applied once.
CREATE TABLE IF NOT EXISTS seckill_top_up (
    operation_id VARBINARY(64) NOT NULL PRIMARY KEY,
    sku_id       BIGINT        NOT NULL,
    units        BIGINT        NOT NULL,
    created_at   DATETIME(3)   NOT NULL,
    KEY of_sale (sku_id, units)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

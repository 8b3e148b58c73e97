-- Which versions of the schema this database has had (protocol/migrate.py).

-- name: version_table
CREATE TABLE IF NOT EXISTS seckill_migration (
    version    INT         NOT NULL PRIMARY KEY,
    name       VARCHAR(80) NOT NULL,
    applied_at DATETIME(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4

-- name: applied
SELECT version FROM seckill_migration ORDER BY version

-- Two migrations at once wait for each other: DDL commits by itself, so no transaction can fence it. The lock's name, at most
-- 64 characters, is the server's: the database is part of it.
-- name: lock
SELECT GET_LOCK(CONCAT('seckill_migrate.', LEFT(DATABASE(), 40)), 5) AS got

-- name: unlock
SELECT RELEASE_LOCK(CONCAT('seckill_migrate.', LEFT(DATABASE(), 40)))

-- name: mark_applied
INSERT INTO seckill_migration (version, name, applied_at) VALUES (%s, %s, UTC_TIMESTAMP(3))

-- MariaDB before 11.1 knows only the older name of the isolation level.
-- name: server_settings
SHOW VARIABLES WHERE Variable_name IN
    ('transaction_isolation', 'tx_isolation', 'time_zone', 'innodb_lock_wait_timeout', 'innodb_flush_log_at_trx_commit')

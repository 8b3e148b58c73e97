-- The user that the functions connect as (protocol/app_user.py). The master user runs these.

-- name: exists
SELECT 1 AS found FROM mysql.user WHERE user = %s AND host = '%%'

-- RDS's plugin: the password is a token signed by the caller's role. The same words on MySQL, Aurora and MariaDB.
-- name: create
CREATE USER %s@'%%' IDENTIFIED WITH AWSAuthenticationPlugin AS 'RDS'

-- name: tables
SELECT table_name AS name FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND table_name <> 'seckill_migration'
ORDER BY table_name

-- The incident's two tables, in a database of their own. {units} is the sale's stock.
CREATE TABLE incident_stock (
    sku_id    BIGINT NOT NULL PRIMARY KEY,
    remaining INT    NOT NULL
) ENGINE = InnoDB;

CREATE TABLE incident_order (
    order_id       BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    pre_deduct_key VARBINARY(128) NOT NULL,
    sku_id         BIGINT         NOT NULL,
    user_id        VARBINARY(512) NOT NULL,
    created_at     DATETIME(3)    NOT NULL,
    UNIQUE KEY uk_pre_deduct_key (pre_deduct_key),
    KEY ix_sku (sku_id)
) ENGINE = InnoDB;

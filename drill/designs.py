"""Where each design keeps its accounts, seen from outside: table and key names, nothing of anybody's code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Design:
    """One of the two columns of the drill's table. Names are those of docs/protocol.md section 3 for the product."""

    column: str  # before | after
    title: str
    database_suffix: str
    order_table: str
    stock_table: str
    has_ledger: bool
    redis_stock_key: str
    redis_stock_field: str | None  # a field of a hash, or None for a plain key
    redis_held_key: str | None  # a hash with an entry for each reservation under way and one sentinel


def incident_design(sku_id: int) -> Design:
    """The design that lost seven units."""
    return Design(
        column="before",
        title="the incident's own design",
        database_suffix="drill_incident",
        order_table="incident_order",
        stock_table="incident_stock",
        has_ledger=False,
        redis_stock_key=f"seckill:stock:{sku_id}",
        redis_stock_field=None,
        redis_held_key=None,
    )


def product_design(sku_id: int) -> Design:
    """This product."""
    return Design(
        column="after",
        title="this product",
        database_suffix="drill_product",
        order_table="seckill_order",
        stock_table="seckill_stock",
        has_ledger=True,
        redis_stock_key=f"seckill:{{{sku_id}}}:sale",
        redis_stock_field="stock",
        redis_held_key=f"seckill:{{{sku_id}}}:held",
    )

"""The verdict: each key that a shopper was promised is looked up in the database, and the accounts are added up.

Nothing here comes from the product: own connections, own SQL, own arithmetic from docs/protocol.md sections 1 and 6.
The promises come from the clients' own log (drill/answers.py).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
import pymysql.cursors

from drill.accounts import AccountReader, Accounts, Places, connect_redis
from drill.answers import Answer, promised_keys
from drill.database import connect
from drill.designs import Design

KEYS_PER_QUERY = 500


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the accounts say when all is quiet, in units (the drill's sales have one unit a reservation).

    gap      promised keys with neither exactly one order nor a notice (docs/protocol.md section 1): lost + pending
    lost     those of them that nothing will ever land
    pending  those still at status 1 in the ledger although reconcile had its time
    """

    accounts: Accounts
    promised: int
    lost: list[str]
    pending: list[str]
    oversold: int
    orders_nobody_was_told_of: int
    users_promised_twice: int
    findings: list[str] = field(default_factory=list)

    @property
    def gap(self) -> int:
        return len(self.lost) + len(self.pending)

    @property
    def balances(self) -> bool:
        """No gap, nothing sold twice, every equation true."""
        return not self.gap and not self.oversold and not self.findings


def check(design: Design, places: Places, units: int, answers: Sequence[Answer]) -> Verdict:
    """Look everything up once. Call it when nothing moves any more."""
    promises = promised_keys(answers)
    with contextlib.closing(AccountReader(design, places)) as reader:
        accounts = reader.read()
    with contextlib.closing(connect(places.database_url)) as session:
        orders = _orders(session, design, promises)
        open_keys = [key for key in promises if len(orders.get(key, [])) != 1]
        noticed = _noticed(session, open_keys) if design.has_ledger else set()
        at_status_1 = _at_status_1(session, open_keys) if design.has_ledger else set()
        sold = _sold(session, design, places.sku_id)
        findings = [*_twice_promised(answers), *_wrong_orders(promises, orders)]
        if design.has_ledger:
            findings += _broken_equations(session, places, units)
            findings += _left_open(accounts)
            findings += _unsold(session, places, units, answers)
    unfulfilled = [key for key in open_keys if key not in noticed]
    pending = [key for key in unfulfilled if key in at_status_1]
    return Verdict(
        accounts=accounts,
        promised=len(promises),
        lost=[key for key in unfulfilled if key not in at_status_1],
        pending=pending,
        oversold=max(0, sold - units),
        orders_nobody_was_told_of=accounts.orders - sum(len(found) for found in orders.values()),
        users_promised_twice=sum(1 for keys in Counter(promises.values()).values() if keys > 1),
        findings=findings,
    )


Orders = dict[str, list[str]]  # promised key -> the users of its orders


def _orders(session: pymysql.Connection, design: Design, promises: dict[str, str]) -> Orders:
    found: Orders = {}
    sql = f"SELECT pre_deduct_key, user_id FROM {design.order_table} WHERE pre_deduct_key IN %s"  # noqa: S608
    for row in _for_keys(session, sql, list(promises)):
        found.setdefault(_text(row[0]), []).append(_text(row[1]))
    return found


def _noticed(session: pymysql.Connection, keys: list[str]) -> set[str]:
    sql = "SELECT pre_deduct_key FROM seckill_notice WHERE pre_deduct_key IN %s"
    return {_text(row[0]) for row in _for_keys(session, sql, keys)}


def _at_status_1(session: pymysql.Connection, keys: list[str]) -> set[str]:
    sql = "SELECT pre_deduct_key FROM seckill_pre_deduct WHERE status = 1 AND pre_deduct_key IN %s"
    return {_text(row[0]) for row in _for_keys(session, sql, keys)}


def _for_keys(session: pymysql.Connection, sql: str, keys: list[str]) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(keys), KEYS_PER_QUERY):
        with session.cursor() as cursor:
            cursor.execute(sql, (keys[start : start + KEYS_PER_QUERY],))
            yield from cursor.fetchall()


def _sold(session: pymysql.Connection, design: Design, sku_id: int) -> int:
    units = "COALESCE(SUM(quantity), 0)" if design.has_ledger else "COUNT(*)"
    return _number(session, f"SELECT {units} FROM {design.order_table} WHERE sku_id = %s", sku_id)  # noqa: S608


def _twice_promised(answers: Sequence[Answer]) -> list[str]:
    users_of: dict[str, set[str]] = {}
    nameless = 0
    for answer in answers:
        if answer.promised:
            nameless += answer.key is None
            users_of.setdefault(answer.key or "", set()).add(answer.user)
    findings = [
        f"key {key} was promised to {len(users)} users" for key, users in users_of.items() if key and len(users) > 1
    ]
    return findings + ([f"{nameless} promises named no key"] if nameless else [])


def _wrong_orders(promises: dict[str, str], orders: Orders) -> list[str]:
    findings = []
    for key, users in orders.items():
        if len(users) > 1:
            findings.append(f"key {key} has {len(users)} orders")
        elif users[0] != promises[key]:
            findings.append(f"key {key} was promised to {promises[key]}, its order is {users[0]}'s")
    return findings


def _broken_equations(session: pymysql.Connection, places: Places, units: int) -> list[str]:
    """I0 to I3 of docs/protocol.md, added up from the rows themselves."""
    with session.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SELECT epoch, cap FROM seckill_sale WHERE sku_id = %s", (places.sku_id,))
        sale = cursor.fetchone()
        cursor.execute("SELECT total, remaining FROM seckill_stock WHERE sku_id = %s", (places.sku_id,))
        stock = cursor.fetchone()
        cursor.execute(
            "SELECT pre_deduct_key, user_id, quantity, epoch, status FROM seckill_pre_deduct WHERE sku_id = %s",
            (places.sku_id,),
        )
        rows = cursor.fetchall()
        cursor.execute("SELECT pre_deduct_key, quantity FROM seckill_order WHERE sku_id = %s", (places.sku_id,))
        orders = {_text(order["pre_deduct_key"]): order["quantity"] for order in cursor.fetchall()}
    if sale is None or stock is None:
        return ["the sale has no row"]
    free = sale["cap"] - sum(row["quantity"] for row in rows if row["epoch"] == sale["epoch"])
    live = sum(row["quantity"] for row in rows if row["status"] in (1, 2))
    pending = sum(row["quantity"] for row in rows if row["status"] == 1)
    landed = {_text(row["pre_deduct_key"]): row["quantity"] for row in rows if row["status"] == 2}
    buyers = Counter(_text(row["user_id"]) for row in rows if row["status"] in (1, 2))
    in_redis = _redis_units(places, {_text(row["pre_deduct_key"]): row["status"] for row in rows})
    equations = [
        ("total", stock["total"], units),
        ("I0: orders = rows at status 2, key by key", orders == landed, True),
        ("I1: free + live = total", free + live, units),
        ("I2: remaining + ordered = total", stock["remaining"] + sum(orders.values()), units),
        (
            "I3: Redis stock + units held without a live row = remaining - pending",
            in_redis,
            stock["remaining"] - pending,
        ),
        ("P5: users with more than one live reservation", sum(1 for held in buyers.values() if held > 1), 0),
    ]
    return [f"{name}: {left}, should be {right}" for name, left, right in equations if left != right]


def _left_open(accounts: Accounts) -> list[str]:
    """P4 of docs/protocol.md, and the dead letters: reconcile has had the time to finish them (drill/run.py)."""
    left = [("P4: {} reservations still held in Redis", accounts.held), ("{} dead letters", accounts.dead_letters)]
    return [f"{what.format(number)}, should be 0" for what, number in left if number]


def _unsold(session: pymysql.Connection, places: Places, units: int, answers: Sequence[Answer]) -> list[str]:
    """Units that nobody got although enough shoppers asked, and that nothing excuses.

    A unit may come back when the last shopper has been told SOLD_OUT and is gone: that is no fault. But whatever came
    back has left a row at status 3 (a roll-back, or a reservation given up on its way), unless a rebuild gave it back.
    So SOLD_OUT excuses no more units than there are such rows; and it excuses none if nobody was told so, however many
    units came and went. Who got no answer, or a 503 each time, may have met a busy moment: that counts only when a
    whole sale's worth of shoppers asked, or when nothing was sold at all.
    """
    with session.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SELECT rebuilt_at FROM seckill_sale WHERE sku_id = %s", (places.sku_id,))
        sale = cursor.fetchone()
        cursor.execute("SELECT user_id, quantity, status FROM seckill_pre_deduct WHERE sku_id = %s", (places.sku_id,))
        rows = cursor.fetchall()
    sold = sum(row["quantity"] for row in rows if row["status"] in (1, 2))
    came_back = sum(row["quantity"] for row in rows if row["status"] == 3)
    last_told = {answer.user: answer.code for answer in answers}
    served = {_text(row["user_id"]) for row in rows if row["status"] in (1, 2)}
    served |= {answer.user for answer in answers if answer.promised}
    in_vain = last_told.keys() - served
    unsold = units - sold
    if unsold <= 0 or not in_vain or (sold and len(last_told) < units):
        return []
    rebuilt = sale is not None and sale["rebuilt_at"] is not None
    if any(answer.sold_out for answer in answers) and (rebuilt or unsold <= came_back):
        return []
    told = ", ".join(sorted({last_told[user] for user in in_vain}))
    return [f"{unsold} of {units} units unsold, {len(in_vain)} shoppers asked in vain: {told}"]


def _redis_units(places: Places, status_of: dict[str, int]) -> int:
    """Redis's stock, plus the units it holds for keys without a row or at status 3: they are on their way back."""
    client = connect_redis(places.redis_url)
    try:
        stock = int(client.hget(f"seckill:{{{places.sku_id}}}:sale", "stock") or 0)
        holds = client.hgetall(f"seckill:{{{places.sku_id}}}:held")
    finally:
        client.close()
    returning = 0
    for field_name, value in holds.items():
        key = _text(field_name)
        if not key.startswith("#") and status_of.get(key, 3) == 3:
            returning += int(json.loads(value)["quantity"])
    return stock + returning


def _number(session: pymysql.Connection, sql: str, *arguments: object) -> int:
    with session.cursor() as cursor:
        cursor.execute(sql, arguments)
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

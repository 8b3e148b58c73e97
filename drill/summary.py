"""The drill's numbers: what report.json holds, and the rows of the account table."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from drill.accounts import connect_redis
from drill.answers import latency_ms, requests_per_second
from drill.database import connect
from drill.faults.plan import Fault
from drill.run import Outcome

NO_LEDGER = "no ledger"


def account_json(outcome: Outcome) -> dict[str, Any]:
    """One design's accounts under the names that outside checks rely on, and some more after them."""
    verdict, accounts = outcome.verdict, outcome.verdict.accounts
    ledger = {"reserved": accounts.reserved, "landed": accounts.landed, "rolledBack": accounts.rolled_back}
    return {
        "redisStock": accounts.redis_stock,
        "promised": verdict.promised,
        "orders": accounts.orders,
        "databaseStock": accounts.database_stock,
        "queueDepth": accounts.queue_depth,
        "deadLetters": accounts.dead_letters,
        "ledger": ledger if outcome.design.has_ledger else None,
        "gap": verdict.gap,
        "oversold": verdict.oversold,
        "promisedWithoutOrder": sorted(verdict.lost + verdict.pending),
        "requestsPerSecond": requests_per_second(outcome.answers),
        "latencyMs": {
            "won": latency_ms(answer for answer in outcome.answers if answer.won),
            "soldOut": latency_ms(answer for answer in outcome.answers if answer.sold_out),
        },
        "balances": verdict.balances,
        "lost": len(verdict.lost),
        "pending": len(verdict.pending),
        "findings": verdict.findings,
        "usersPromisedTwice": verdict.users_promised_twice,
        "ordersNobodyWasToldOf": verdict.orders_nobody_was_told_of,
        "sendsHit": sends_hit(outcome),
        "lostTo": by_fault(outcome, verdict.lost),
        "pendingAfter": by_fault(outcome, verdict.pending),
        "answers": answer_counts(outcome),
        "connectionsOpenAtOnce": outcome.most_connections,
        "quietAfterSeconds": round(outcome.quiet_after, 1),
        "moments": [
            {"at": round(moment.at, 2), "fault": moment.fault, "what": moment.what} for moment in outcome.moments
        ],
    }


def by_fault(outcome: Outcome, keys: Iterable[str]) -> dict[str, int]:
    """So many of the keys were hit by each fault, and by none: measured, from the keys of the hit sends."""
    fault_of = {send.key: send.hit.fault.value for send in outcome.hit_sends}
    counted = Counter(fault_of.get(key, "none") for key in keys)
    return {name: counted[name] for name in (*(fault.value for fault in Fault), "none")}


def sends_hit(outcome: Outcome) -> dict[str, int]:
    return dict(Counter(send.hit.value for send in outcome.hit_sends))


def answer_counts(outcome: Outcome) -> dict[str, int]:
    counted = Counter(f"{answer.status} {answer.code}" for answer in outcome.answers)
    return dict(sorted(counted.items()))


Row = tuple[str, list[str]]


def account_rows(outcomes: list[Outcome]) -> list[Row]:
    """The mission's table, one column for each outcome."""
    columns = [account_json(outcome) for outcome in outcomes]

    def ledger(column: dict[str, Any], name: str) -> str:
        return NO_LEDGER if column["ledger"] is None else str(column["ledger"][name])

    return [
        ("Redis stock left", [str(column["redisStock"]) for column in columns]),
        ('told "reserved"', [str(column["promised"]) for column in columns]),
        ("orders in the database", [str(column["orders"]) for column in columns]),
        ("database stock left", [str(column["databaseStock"]) for column in columns]),
        ("queue lag", [str(column["queueDepth"]) for column in columns]),
        ("dead-letter messages", [str(column["deadLetters"]) for column in columns]),
        ("ledger rows landed (status 2)", [ledger(column, "landed") for column in columns]),
        ("ledger rows pending (status 1)", [ledger(column, "reserved") for column in columns]),
        ("gap", [_gap(column) for column in columns]),
    ]


def _gap(column: dict[str, Any]) -> str:
    if not column["pending"]:
        return str(column["gap"])
    return f"{column['gap']} ({column['lost']} lost, {column['pending']} pending)"


FAULT_WORDS = {
    Fault.A: "the send times out, before or after delivery",
    Fault.B: "the message comes late, Redis stock is 0",
    Fault.C: "the hot row is held until retries are used up",
}


def fault_rows(outcomes: list[Outcome]) -> list[Row]:
    """What each fault cost each design. The last row is what was lost without being hit; hidden when it is nothing."""
    lost = [by_fault(outcome, outcome.verdict.lost) for outcome in outcomes]
    pending = [by_fault(outcome, outcome.verdict.pending) for outcome in outcomes]
    names = {fault.value: f"{fault.value}  {words}" for fault, words in FAULT_WORDS.items()}
    names["none"] = "   hit by none of them"
    rows = []
    for name, words in names.items():
        cells = [_cost(each[name], waiting[name]) for each, waiting in zip(lost, pending, strict=True)]
        if name != "none" or any(cell != "0" for cell in cells):
            rows.append((words, cells))
    return rows


def _cost(lost: int, pending: int) -> str:
    return f"{lost} + {pending} pending" if pending else str(lost)


def versions(database_url: str, redis_url: str) -> dict[str, str]:
    """What took part, so that two reports can be compared."""
    session = connect(database_url)
    with session.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
    database = str(row[0]) if row else "unknown"
    session.close()
    client = connect_redis(redis_url)
    server = client.info("server")
    client.close()
    if "redis_version" not in server:  # a cluster client answers per node
        server = next(iter(server.values()))
    redis_name = "valkey" if "valkey_version" in server else "redis"
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "database": database if "MariaDB" in database else f"{database} MySQL",
        redis_name: str(server[f"{redis_name}_version"]),
        **{package: version(package) for package in ("seckill", "granian", "moto", "boto3", "redis", "pymysql")},
    }

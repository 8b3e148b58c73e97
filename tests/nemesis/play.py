"""One nemesis run: buyers, seller, watcher and nemesis on a stack of their own, then peace, then the verdict."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pymysql

from local.servers import Servers, running_servers, wait_until
from local.stack import Stack, StackOptions, running_stack
from tests.books import connect
from tests.nemesis.buyers import UNLUCKY, Asked, Market, Outcome, ask, buy
from tests.nemesis.check import Ledger, read_ledger, verdict
from tests.nemesis.nemesis import Event, Nemesis
from tests.nemesis.seller import Seller
from tests.nemesis.watch import Watcher, open_ends

# As many as keep a few containers busy without being a storm.
BUYERS = 6
# What takes minutes in earnest takes seconds here, and rows are stale before things that broke are back: sweepers meet
# calls that are still under way.
OPTIONS = StackOptions(
    workers=4, visibility_seconds=5, max_receive_count=3, reconcile_seconds=1.5, stale_after_seconds=3
)
# Storm and peace take turns: each storm leaves something else behind for the reconciler.
STORM_SECONDS = 15.0
# A copy that drifted is rebuilt half a minute after the last time; the rest takes seconds, or many on a busy machine.
PEACE_SECONDS = 120.0


@dataclass
class Report:
    """What happened, and what is wrong with it: `problems` is empty when all is well."""

    seed: int
    events: list[Event] = field(default_factory=list)
    history: list[Asked] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    looks: int = 0
    peace_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def promised(self) -> set[str | None]:
        """Keys that buyers were promised."""
        return {asked.key for asked in self.history if asked.outcome is Outcome.OK}


class NotOurs(Exception):
    """A server was not started for this run."""


def play(seconds: float, seed: int, *, patient: bool) -> Report:
    """Storms, and after each as much peace as the reconciler takes to close all accounts, for `seconds` altogether.

    The half minute between two automatic rebuilds of a sale flies by; a patient run waits for it in its last peace.
    """
    with ExitStack() as ending:
        servers = ending.enter_context(running_servers())
        if servers.database is None or servers.redis is None:
            raise NotOurs("servers that are somebody's own are not killed: unset SECKILL_TEST_*_URL")
        stack = ending.enter_context(running_stack(servers, OPTIONS))
        ending.enter_context(_unlucky_orders_refused(servers))
        run = _Run(servers, stack, seed)
        ending.callback(run.nemesis.end_programs)
        run.seller.open_shop()
        ends = time.monotonic() + seconds
        last = False
        while not last and not run.report.problems:
            last = time.monotonic() + STORM_SECONDS >= ends
            with _half_minutes_fly(servers.database_url):
                run.storm()
                if not run.report.problems and not (last and patient):
                    run.peace()
        if patient and not run.report.problems:
            run.peace()
    return run.report


class _Run:
    """Everybody who takes part."""

    def __init__(self, servers: Servers, stack: Stack, seed: int) -> None:
        self.report = Report(seed)
        self.nemesis = Nemesis(servers, stack, random.Random(f"{seed} nemesis"), self.report.events)
        self._market = Market(stack.base_url, history=self.report.history)
        self.seller = Seller(stack, self._market, random.Random(f"{seed} seller"), done=self.report.operations)
        self._watcher = Watcher(servers.database_url, self.seller.opened, random.Random(f"{seed} watcher"))
        self._servers = servers
        self._stack = stack
        self._storms = 0

    def storm(self) -> None:
        """Everybody at once, until the time is over or the books are seen not to balance."""
        self._storms += 1
        closing = self._market.closing
        closing.clear()
        with ThreadPoolExecutor(BUYERS + 2) as crowd:
            names = [f"{self._storms}-{number}" for number in range(BUYERS)]
            working = [crowd.submit(buy, self._market, name, self.report.seed) for name in names]
            working += [crowd.submit(self.seller.run), crowd.submit(self._watcher.run, closing)]
            try:
                self.nemesis.rage(STORM_SECONDS, closing)
            finally:
                closing.set()
            for worker in working:
                worker.result()
        self.report.looks = self._watcher.looks
        self.report.problems += self._watcher.problems

    def peace(self) -> None:
        """Nobody breaks or mends anything, and one last buyer comes to each sale."""
        began, problems = time.monotonic(), self.report.problems
        wait_until(self._everybody_knows, PEACE_SECONDS)
        url = self._servers.database_url
        sales = [sku_id for sku_id in self.seller.sku_ids if read_ledger(url, sku_id)]
        if not wait_until(lambda: not any(self._left_open(sales)), PEACE_SECONDS):
            problems += self._left_open(sales)
        self.report.peace_seconds.append(time.monotonic() - began)
        self.report.ledgers = [ledger for sku_id in sales if (ledger := read_ledger(url, sku_id))]
        for ledger in self.report.ledgers:
            problems += verdict(ledger, self.report.history)

    def _everybody_knows(self) -> bool:
        """Whether a buyer of each sale on offer, who has just asked, got an answer that says what he has."""
        users = {sku_id: f"last-{self._storms}-{sku_id}" for sku_id in self._market.sku_ids}
        asked = [ask(self._stack.base_url, sku_id, user) for sku_id, user in users.items()]
        self.report.history += asked
        return all(one.outcome is not Outcome.UNKNOWN for one in asked)

    def _left_open(self, sales: Sequence[int]) -> list[str]:
        """What is not finished; when we find nothing, what the product's own audit says."""
        found = [f"SKU {sku_id}: {end}" for sku_id in sales for end in open_ends(self._servers, sku_id)]
        if found:
            return found
        audits = self._stack.sale_admin({"action": "audit"})["audits"]
        return [f"the product's own audit: {audit}" for audit in audits if not _is_well(audit)]


def _is_well(audit: dict[str, Any]) -> bool:
    return audit["ok"] is True and audit["gap"] == 0 and audit["drift"] == 0


@contextmanager
def _half_minutes_fly(database_url: str) -> Iterator[None]:
    """The last rebuild of every sale grows old ten times as fast."""
    over = threading.Event()

    def age() -> None:
        while not over.wait(1):
            with suppress(pymysql.MySQLError), connect(database_url) as connection, connection.cursor() as cursor:
                cursor.execute("UPDATE seckill_sale SET rebuilt_at = rebuilt_at - INTERVAL 10 SECOND")

    thread = threading.Thread(target=age, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _unlucky_orders_refused(servers: Servers) -> Iterator[None]:
    """Orders of unlucky users cannot be written: their reservations are rolled back, with a notice."""
    with connect(servers.database_url) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER IF EXISTS unlucky")
        cursor.execute(
            "CREATE TRIGGER unlucky BEFORE INSERT ON seckill_order FOR EACH ROW"
            f" IF NEW.user_id LIKE '{UNLUCKY}%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'bad luck'; END IF"
        )
    try:
        yield
    finally:
        with connect(servers.database_url) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER IF EXISTS unlucky")

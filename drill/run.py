"""One run of the drill: a design, a storm, the faults, and the verdict when all is quiet."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from drill.accounts import AccountReader, Accounts, Places, Sampler, connect_redis
from drill.answers import Answer
from drill.check import Verdict, check
from drill.database import connect, with_database
from drill.designs import Design, incident_design, product_design
from drill.error import DrillError
from drill.faults.director import HOLD_SECONDS, LATE_SECONDS, Director, Moment
from drill.faults.hot_row import HeldRow
from drill.faults.plan import Fault, FaultPlan, plan_faults
from drill.faults.queue_proxy import HitSend, QueueProxy
from drill.incident.consumer import CONSUMERS
from drill.shoppers import plan_shoppers
from drill.storm import Progress, Storm
from local.servers import Servers
from local.stack import Stack, StackOptions, running_stack

# Reserve containers behind the front, in both designs: two per core of the smallest machine it is meant for.
WORKERS = 4
VISIBILITY_SECONDS = 5
# Shorter than production's 30 s and 2 minutes, so that a drill is over in a minute; above fault B's lateness, so that
# late messages meet land_order and not rows that reconcile has landed before.
RECONCILE_SECONDS = 3
STALE_AFTER_SECONDS = 15
INCIDENT_SCHEMA = Path(__file__).parent / "incident" / "schema.sql"
# Five receives, five seconds apart, the move to the dead-letter queue and a few reconcile passes, with room.
QUIET_DEADLINE_SECONDS = 45.0
# So many readings in a row must say that nothing moves.
QUIET_READINGS = 3


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What a drill is asked to do. Times in seconds."""

    users: int
    units: int
    ramp_seconds: float
    storm_seconds: float
    faults: frozenset[Fault]
    seed: int
    sku_id: int = 1001


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All that was measured of one design. Times are seconds since the sale opened."""

    design: Design
    verdict: Verdict
    answers: list[Answer]
    samples: list[tuple[float, Accounts]]
    moments: list[Moment]
    hit_sends: list[HitSend]
    most_connections: int
    quiet_after: float


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One design ready to sell: its stack, where its accounts are, and the proxy that every send goes through."""

    design: Design
    stack: Stack
    places: Places
    proxy: QueueProxy

    def hold_row(self) -> HeldRow:
        """Fault C's held row; a context manager."""
        return HeldRow(self.places.database_url, self.design.stock_table, self.places.sku_id)


@contextlib.contextmanager
def _own_database(servers: Servers, design: Design) -> Iterator[Servers]:
    """The same servers with a database for this run only, empty at the start and gone at the end."""
    # With the process id: a user's own server may see two drills at once.
    name = f"seckill_{design.database_suffix}_{os.getpid()}"
    try:
        with contextlib.closing(connect(servers.database_url)) as session, session.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    except pymysql.MySQLError as error:
        raise DrillError(f"the drill needs a database of its own, {name}: {error}") from error
    try:
        yield dataclasses.replace(servers, database_url=with_database(servers.database_url, name))
    finally:
        with contextlib.closing(connect(servers.database_url)) as session, session.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")


@contextlib.contextmanager
def _own_redis_keys(servers: Servers, design: Design, sku_id: int) -> Iterator[None]:
    """Leaves no key of this run behind in a Redis that is the user's own."""
    try:
        yield
    finally:
        client = connect_redis(servers.redis_url)
        client.delete(design.redis_stock_key)
        if design.has_ledger:
            for name in ("held", "buyers"):
                client.delete(f"seckill:{{{sku_id}}}:{name}")
            client.srem("seckill:catalogue", str(sku_id))
        client.close()


def _set_up_incident(servers: Servers, parameters: Parameters) -> None:
    sku_id, units = parameters.sku_id, parameters.units
    with contextlib.closing(connect(servers.database_url)) as session, session.cursor() as cursor:
        lines = INCIDENT_SCHEMA.read_text(encoding="utf-8").splitlines()
        for statement in "\n".join(line for line in lines if not line.startswith("--")).split(";"):
            if statement.strip():
                cursor.execute(statement)
        cursor.execute("INSERT INTO incident_stock (sku_id, remaining) VALUES (%s, %s)", (sku_id, units))
    redis_copy = connect_redis(servers.redis_url)
    redis_copy.set(incident_design(sku_id).redis_stock_key, units)
    redis_copy.close()


@contextlib.contextmanager
def _incident_stack(servers: Servers, parameters: Parameters, queue_url: str) -> Iterator[Stack]:
    """The incident's design, ready to sell. Its front reaches SQS at `queue_url`."""
    _set_up_incident(servers, parameters)
    options = StackOptions(
        workers=WORKERS,
        poller_concurrency=CONSUMERS,
        batch_size=1,
        batch_window_seconds=0,
        visibility_seconds=VISIBILITY_SECONDS,
        max_receive_count=1,  # the consumer retries by itself; what it fails is dead
        reserve_environment={"AWS_ENDPOINT_URL": queue_url},
        reserve_handler="drill.incident.front.lambda_handler",
        land_order_handler="drill.incident.consumer.lambda_handler",
        migrate=False,
        reconcile=False,  # the incident had none
    )
    with running_stack(servers, options) as stack:
        yield stack


@contextlib.contextmanager
def _product_stack(servers: Servers, parameters: Parameters, queue_url: str) -> Iterator[Stack]:
    """This product with its sale open. Its reserve function reaches SQS at `queue_url`."""
    options = StackOptions(
        workers=WORKERS,
        visibility_seconds=VISIBILITY_SECONDS,
        reconcile_seconds=RECONCILE_SECONDS,
        stale_after_seconds=STALE_AFTER_SECONDS,
        reserve_environment={"AWS_ENDPOINT_URL": queue_url},
    )
    with running_stack(servers, options) as stack:
        opened = stack.sale_admin({"action": "open_sale", "skuId": parameters.sku_id, "total": parameters.units})
        if not opened.get("ok"):
            raise DrillError(f"the sale could not be opened: {opened}")
        yield stack


STACKS: Mapping[str, Callable[[Servers, Parameters, str], contextlib.AbstractContextManager[Stack]]] = {
    "before": _incident_stack,
    "after": _product_stack,
}
DESIGNS: Mapping[str, Callable[[int], Design]] = {"before": incident_design, "after": product_design}


@contextlib.contextmanager
def staged(column: str, servers: Servers, parameters: Parameters, plan: FaultPlan) -> Iterator[Stage]:
    """The design of that column, set up on the servers; nothing of it stays."""
    design = DESIGNS[column](parameters.sku_id)
    with contextlib.ExitStack() as running:
        own_servers = running.enter_context(_own_database(servers, design))
        running.enter_context(_own_redis_keys(servers, design, parameters.sku_id))
        proxy = running.enter_context(QueueProxy(servers.aws_endpoint_url, plan, parameters.units))
        stack = running.enter_context(STACKS[column](own_servers, parameters, proxy.url))
        places = Places(
            database_url=own_servers.database_url,
            redis_url=own_servers.redis_url,
            aws_endpoint_url=own_servers.aws_endpoint_url,
            landing_queue_url=stack.queues.landing_url,
            dead_letter_queue_url=stack.queues.landing_dlq_url,
            sku_id=parameters.sku_id,
        )
        yield Stage(design=design, stack=stack, places=places, proxy=proxy)


def run_design(
    column: str, servers: Servers, parameters: Parameters, log_path: Path, on_progress: Callable[[Progress], None]
) -> Outcome:
    """Set one design up, storm it, inject the faults, wait until nothing moves, and check it."""
    plan = plan_faults(parameters.seed, parameters.units, parameters.faults)
    with staged(column, servers, parameters, plan) as stage, contextlib.ExitStack() as running:
        sampler = running.enter_context(Sampler(AccountReader(stage.design, stage.places)))
        director = running.enter_context(Director(plan, stage.proxy, sampler, stage.hold_row))
        storm = _storm(stage, parameters, log_path, director.open, on_progress)
        answers = storm.run()
        director.finish()
        quiet_at = _wait_until_quiet(sampler)
        return Outcome(
            design=stage.design,
            verdict=check(stage.design, stage.places, parameters.units, answers),
            answers=answers,
            samples=[(sample.at - storm.opened_at, sample) for sample in sampler.samples],
            moments=[dataclasses.replace(moment, at=moment.at - storm.opened_at) for moment in director.moments],
            hit_sends=[dataclasses.replace(send, at=send.at - storm.opened_at) for send in stage.proxy.hit_sends],
            most_connections=storm.most_connections,
            quiet_after=quiet_at - storm.opened_at,
        )


def _storm(
    stage: Stage,
    parameters: Parameters,
    log_path: Path,
    on_open: Callable[[float], None],
    on_progress: Callable[[Progress], None],
) -> Storm:
    return Storm(
        base_url=stage.stack.base_url,
        sku_id=parameters.sku_id,
        shoppers=plan_shoppers(parameters.users, parameters.ramp_seconds, parameters.storm_seconds, parameters.seed),
        ramp_seconds=parameters.ramp_seconds,
        storm_seconds=parameters.storm_seconds,
        log_path=log_path,
        on_open=on_open,
        on_progress=on_progress,
    )


def _wait_until_quiet(sampler: Sampler) -> float:
    """Until the landing queue is empty, nothing is left to reconcile and the accounts stand still.

    After the deadline the check says what is left.
    """
    deadline = time.monotonic() + QUIET_DEADLINE_SECONDS
    still, last = 0, sampler.latest
    while still < QUIET_READINGS and time.monotonic() < deadline:
        sample = sampler.wait_for(last.at, deadline)
        if sample is None:
            break
        moved = dataclasses.replace(sample, at=last.at) != last
        still = 0 if moved or sample.queue_depth or sample.unfinished else still + 1
        last = sample
    return last.at


def describe(parameters: Parameters) -> dict[str, Any]:
    """The parameters as the report prints them."""
    return {
        "users": parameters.users,
        "units": parameters.units,
        "rampSeconds": parameters.ramp_seconds,
        "stormSeconds": parameters.storm_seconds,
        "faults": sorted(fault.value for fault in parameters.faults),
        "seed": parameters.seed,
        "skuId": parameters.sku_id,
        "reserveContainers": WORKERS,
        "visibilitySeconds": VISIBILITY_SECONDS,
        "hotRowHeldSeconds": HOLD_SECONDS,
        "lateMessageSeconds": LATE_SECONDS,
        "incidentConsumers": CONSUMERS,
        "reconcileSeconds": RECONCILE_SECONDS,
        "staleAfterSeconds": STALE_AFTER_SECONDS,
    }

"""The reconciler on real servers: what was left open is finished, once."""

from collections.abc import Callable

import pytest

from local.servers import Servers
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis, Won
from seckill.adapters.sqs import DeadLetters
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.protocol.audit import audit_sale
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reconcile import Pass, Reconcile
from seckill.protocol.reserve import Reserve
from tests.aging import age
from tests.books import read_books
from tests.redis_client import redis_client
from tests.sales import Sales

STALE_SECONDS = 120


@pytest.fixture
def reconcile(
    servers: Servers, database: Database, redis: Redis, queue_urls: dict[str, str], counts: list[str]
) -> Callable[[], Pass]:
    """One pass over everything."""
    letters = DeadLetters(queue_urls["landing"], queue_urls["dead_letters"])
    reconciler = Reconcile(database, redis, letters, None, counts.append, STALE_SECONDS, landing_attempts=3)
    return lambda: reconciler(Deadline(seconds=60, longest_wait=5))


def test_a_crash_after_the_deduction_gives_the_unit_back_once_and_the_user_can_buy(
    servers: Servers, sales: Sales, redis: Redis, reserve: Reserve, reconcile: Callable[[], Pass]
) -> None:
    sku_id = sales.open(total=1)
    assert isinstance(redis.reserve(sku_id, "key-of-the-crashed", "alice"), Won)
    assert reserve(sku_id, "bob") == Refused(Refusal.SOLD_OUT)
    age(servers, sku_id)
    assert sum(holds.released for holds in reconcile().holds) == 1
    assert sum(holds.released for holds in reconcile().holds) == 0
    view = redis.view(sku_id)
    assert view is not None
    assert view.stock == 1
    assert isinstance(reserve(sku_id, "alice"), Reserved)


def test_a_stale_promise_is_landed(
    servers: Servers, sales: Sales, redis: Redis, database: Database, reserve: Reserve, reconcile: Callable[[], Pass]
) -> None:
    sku_id = sales.open(total=2)
    reserve(sku_id, "alice")
    audit = audit_sale(database, redis, sku_id, STALE_SECONDS)
    assert audit and audit.ok is True, audit
    age(servers, sku_id)
    audit = audit_sale(database, redis, sku_id, STALE_SECONDS)
    assert audit and audit.gap == 1, audit
    done = reconcile()
    assert done.failed == []
    assert done.stale.landed == 1
    books = read_books(servers.database_url, sku_id)
    assert (books.ordered, books.landed, books.remaining) == (1, 1, 1)
    mine = [a for a in reconcile().audits if a.sku_id == sku_id]
    assert mine[0].ok is True
    assert mine[0].gap == 0


def test_after_a_flush_nothing_is_sold_out_and_a_rebuild_brings_back_what_is_free(
    servers: Servers, sales: Sales, redis: Redis, database: Database, reserve: Reserve, reconcile: Callable[[], Pass]
) -> None:
    sku_id = sales.open(total=5)
    first = reserve(sku_id, "alice")
    redis_client(servers).delete(*(f"seckill:{{{sku_id}}}:{part}" for part in ("sale", "held", "buyers")))
    assert reserve(sku_id, "bob") == Refused(Refusal.UNAVAILABLE)
    assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
    view = redis.view(sku_id)
    assert view is not None
    assert view.stock == 4
    again = reserve(sku_id, "alice")
    assert isinstance(first, Reserved)
    assert isinstance(again, Reserved)
    assert again.key == first.key
    assert rebuild(database, redis, sku_id) is Rebuilt.NOT_NEEDED

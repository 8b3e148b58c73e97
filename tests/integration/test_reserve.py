"""One reservation at a time, on a real Redis and a real MySQL-family server."""

from local.servers import Servers
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.reservation import Status
from seckill.protocol.reserve import Reserve
from tests.books import read_books
from tests.sales import Sales


def test_a_reservation_is_one_unit_in_redis_and_one_row_in_the_ledger(
    servers: Servers, sales: Sales, reserve: Reserve
) -> None:
    sku_id = sales.open(total=3)
    answer = reserve(sku_id, "alice")
    assert isinstance(answer, Reserved)
    assert answer.new
    assert answer.status is Status.RESERVED
    books = read_books(servers.database_url, sku_id)
    assert (books.reserved, books.remaining, books.ordered) == (1, 3, 0)


def test_asking_again_replays_the_same_key(sales: Sales, reserve: Reserve) -> None:
    sku_id = sales.open(total=1)
    first, second = reserve(sku_id, "alice"), reserve(sku_id, "alice")
    assert isinstance(first, Reserved)
    assert isinstance(second, Reserved)
    assert (second.key, second.new) == (first.key, False)


def test_the_unit_after_the_last_is_sold_out(sales: Sales, reserve: Reserve) -> None:
    sku_id = sales.open(total=1)
    reserve(sku_id, "alice")
    assert reserve(sku_id, "bob") == Refused(Refusal.SOLD_OUT)

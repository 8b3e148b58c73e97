"""Many containers at the same moment, each with its own connections, on real servers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from local.servers import Servers
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.protocol.land import land
from seckill.protocol.reserve import Reserve
from tests.books import read_books
from tests.containers import land_container, reserve_container, until_known
from tests.crowd import at_once
from tests.ledger import Ledger
from tests.metrics import uncounted
from tests.redis_copy import RedisCopy
from tests.sales import Sales

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]

# Each takes a connection of MySQL, which has some hundreds, and all run on the machine's few cores.
CONTAINERS = 30
SOLD_OUT = Refused(Refusal.SOLD_OUT)


@pytest.fixture(scope="module")
def containers(servers: Servers, queue_urls: dict[str, str]) -> Iterator[list[Reserve]]:
    """50 containers: the largest crowd of one moment."""
    yield [reserve_container(servers, queue_urls) for _ in range(50)]


def storm(containers: list[Reserve], sku_id: int, users: Iterable[str]) -> dict[str, Answer]:
    """Every user asks once through one of the containers, which work at the same time; the answers by user."""
    crowd = list(users)
    shares = [crowd[number :: len(containers)] for number in range(len(containers))]

    def work(container: Reserve, share: list[str]) -> dict[str, Answer]:
        return {user: until_known(container, sku_id, user) for user in share}

    pairs = zip(containers, shares, strict=True)
    done = at_once([lambda pair=pair: work(*pair) for pair in pairs])  # type: ignore[misc]
    return {user: answer for answers in done for user, answer in answers.items()}


def winners(answers: dict[str, Answer]) -> dict[str, str]:
    """Keys by user; everybody else was told that it is sold out, nothing less clear."""
    assert {answer for answer in answers.values() if isinstance(answer, Refused)} <= {SOLD_OUT}
    return {user: answer.key for user, answer in answers.items() if isinstance(answer, Reserved)}


def test_fifty_simultaneous_requests_of_one_user_make_one_reservation(
    containers: list[Reserve], sales: Sales, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=100)
    answers = at_once([lambda one=one: until_known(one, sku_id, "alice") for one in containers])  # type: ignore[misc]
    keys = Counter(answer.key for answer in answers if isinstance(answer, Reserved))
    assert list(keys.values()) == [50], "one key, told to all"
    assert sum(answer.new for answer in answers if isinstance(answer, Reserved)) <= 1
    assert ledger_of(sku_id).statuses() == dict.fromkeys(keys, 1)
    assert (copy_of(sku_id).stock, list(copy_of(sku_id).holds())) == (99, list(keys))


def test_of_300_users_exactly_100_get_one_of_the_100_units_and_all_of_them_an_order(
    servers: Servers, containers: list[Reserve], sales: Sales, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=100)
    won = winners(storm(containers[:CONTAINERS], sku_id, (f"user {number}" for number in range(300))))
    assert len(won) == 100
    assert len(set(won.values())) == 100
    ledger, copy = ledger_of(sku_id), copy_of(sku_id)
    assert {row.user: row.key for row in ledger.rows().values()} == won
    assert (copy.stock, copy.ticket, copy.buyers()) == (0, 100, won)
    assert sorted(row.ticket for row in ledger.rows().values()) == list(range(1, 101))
    database, redis = land_container(servers)
    land(database, redis, won.values(), uncounted)
    database.close()
    books = read_books(servers.database_url, sku_id)
    assert (books.landed, books.reserved, books.ordered, books.remaining) == (100, 0, 100, 0)
    assert copy.holds() == {}


def test_fifty_buyers_of_the_last_unit_make_one_reservation(
    containers: list[Reserve], sales: Sales, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    won = winners(storm(containers, sku_id, (f"user {number}" for number in range(50))))
    assert len(won) == 1
    assert ledger_of(sku_id).statuses() == dict.fromkeys(won.values(), 1)
    assert copy_of(sku_id).stock == 0


@pytest.mark.parametrize(("total", "quantity", "promises"), [(0, 1, 0), (0, 2, 0), (1, 1, 1), (2, 2, 1), (10, 2, 5)])
def test_a_small_sale_promises_what_it_has(
    servers: Servers, containers: list[Reserve], sales: Sales, copy_of: CopyOf, total: int, quantity: int, promises: int
) -> None:
    sku_id = sales.open(total=total, quantity=quantity)
    won = winners(storm(containers[:10], sku_id, (f"user {number}" for number in range(20))))
    assert len(won) == promises
    assert read_books(servers.database_url, sku_id).reserved == total
    assert copy_of(sku_id).stock == 0


def test_landing_while_the_storm_goes_on_balances(
    servers: Servers, containers: list[Reserve], sales: Sales, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    """Every container also lands what it has just promised, while double-clicks of the same users arrive."""
    sku_id = sales.open(total=40)

    def reserve_and_land(reserve: Reserve, share: list[str]) -> None:
        database, redis = land_container(servers)
        for user in share:
            answer = until_known(reserve, sku_id, user)
            if isinstance(answer, Reserved):
                land(database, redis, [answer.key], uncounted)
                assert until_known(reserve, sku_id, user) != SOLD_OUT
        database.close()

    users = [f"user {number}" for number in range(40)] * 2
    shares = [users[number::16] for number in range(16)]
    pairs = zip(containers, shares, strict=False)
    at_once([lambda pair=pair: reserve_and_land(*pair) for pair in pairs])  # type: ignore[misc]
    database, redis = land_container(servers)
    land(database, redis, ledger_of(sku_id).rows(), uncounted)  # what a lock wait left
    database.close()
    books = read_books(servers.database_url, sku_id)
    assert (books.ordered, books.landed, books.remaining) == (40, 40, 0)
    assert (copy_of(sku_id).stock, copy_of(sku_id).holds()) == (0, {})

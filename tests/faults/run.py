"""One fault run: a process meets a fault, Redis meets trouble, everybody else goes on, and the books are checked."""

import functools
from dataclasses import dataclass

from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.audit import audit_sale
from tests.faults.child import Child, Parent
from tests.faults.faults import DEVIATED, DIED, Fault, Trouble, strike
from tests.faults.market import STALE_SECONDS, Market
from tests.faults.recording import Call, Point, Watcher
from tests.faults.scenarios import Scenario
from tests.faults.shop import Shop, open_shop
from tests.faults.standing import acting, hear

# A run that was disturbed before its fault, by a machine that is far too busy, is begun again.
TRIES = 3


@dataclass(frozen=True)
class FaultRun:
    """What happens in one run."""

    scenario: Scenario
    point: Point
    fault: Fault
    trouble: Trouble
    quantity: int = 1  # units per reservation
    silence: bool = False  # nobody asks again before the reconcilers have put everything right

    def __str__(self) -> str:
        return (
            f"{self.scenario}, {self.quantity} units each: at [{self.point}] the process {self.fault.value};"
            f" Redis {self.trouble.value}; then {'reconcilers' if self.silence else 'shoppers'} first"
        )


class Deviated(Exception):
    """The run came to another call than the recorded one."""


def clean_run(market: Market, scenario: Scenario) -> list[Point]:
    """The points of a run that nothing disturbs; the books balance after it."""

    def recording(parent: Parent) -> Watcher:
        def watcher(call: Call) -> object:
            parent.tell(call.point)
            return call.do()

        return watcher

    with open_shop(market) as shop:
        scenario.prepare(shop)
        act = functools.partial(scenario.act, shop)
        with acting(shop, act, recording) as child:
            assert not child.until_point()
            assert child.exit_status == 0
        points = [said for said in child.said if isinstance(said, Point)]
        child.said = [said for said in child.said if not isinstance(said, Point)]
        hear(shop, child)
        _go_on(shop, scenario, silence=False)
        _check_the_end(shop, scenario)
    return points


def fault_run(market: Market, run: FaultRun) -> None:
    """Raises AssertionError naming what was broken."""
    for tries_left in reversed(range(TRIES)):
        try:
            return _fault_run(market, run)
        except Deviated:
            if not tries_left:
                raise


def _fault_run(market: Market, run: FaultRun) -> None:
    scenario = run.scenario
    with open_shop(market, run.quantity) as shop:
        scenario.prepare(shop)
        act = functools.partial(scenario.act, shop)
        with acting(shop, act, lambda parent: strike(run.fault, run.point, parent.reached)) as child:
            if not child.until_point():
                assert child.exit_status in (0, DEVIATED)
                raise Deviated(f"never came to {run.point}")
            shop.strike_redis(run.trouble)
            hear(shop, child)
            if run.fault.pauses:
                _while_it_stands_still(shop, run, child)
            child.go_on()
        assert child.exit_status == (DIED if run.fault is Fault.DIES else 0)
        hear(shop, child)
        _go_on(shop, scenario, run.silence)
        _check_the_end(shop, scenario)


def _while_it_stands_still(shop: Shop, run: FaultRun, child: Child) -> None:
    if run.fault is Fault.PAUSES_CUT:
        with shop.market.database.cursor() as cursor:
            cursor.execute("KILL %s", [child.session])
    elif run.point.holding:
        # Nobody can finish what waits for its locks: they only have to come to no harm.
        shop.ask(run.scenario.shoppers[-1])
        shop.beat()
        return
    _go_on(shop, run.scenario, run.silence)


def _go_on(shop: Shop, scenario: Scenario, silence: bool) -> None:
    """Everybody asks again, messages are delivered, time goes by, until nothing is open and everybody knows."""
    if silence:
        shop.beat()
        shop.to_a_fixpoint()
    scenario.again(shop, shop.front)
    for user in scenario.shoppers:
        shop.ask(user)
    if not silence:
        shop.deliver()
        shop.beat()
    shop.to_a_fixpoint()
    for user in scenario.shoppers:
        if not isinstance(shop.last_answers[user], Reserved):
            answer = shop.ask(user)
            assert shop.knows(user), f"{user} asks in a quiet moment and gets {answer}"
    shop.to_a_fixpoint()


def _check_the_end(shop: Shop, scenario: Scenario) -> None:
    """Who was rolled back can buy, then newcomers, exactly as many as there are units; then all is sold."""
    sale = shop.evidence()
    assert sale is not None
    assert not scenario.outcome(sale), f"{scenario.outcome(sale)}: {sale}"
    free = sale.remaining // sale.quantity if sale.state == "open" else 0
    buyers = [user for user in scenario.shoppers if user not in sale.copy.buyers]
    buyers += [f"newcomer-{number}" for number in range(free + 1)]
    answers = [shop.ask(user) for user in buyers]
    refusal = Refusal.SOLD_OUT if sale.state == "open" else Refusal.CLOSED
    assert all(isinstance(answer, Reserved) for answer in answers[:free]), f"{answers} with {free} free: {sale}"
    assert all(answer == Refused(refusal) for answer in answers[free:]), f"{answers} with {free} free: {sale}"
    shop.to_a_fixpoint()
    shop.front.new_call()
    audit = audit_sale(shop.front.database, shop.front.redis, shop.sku_id, STALE_SECONDS)
    assert audit is not None
    assert (audit.ok, audit.gap, audit.drift, audit.findings) == (True, 0, 0, [])
    assert not shop.unheard_notices()

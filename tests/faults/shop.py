"""One sale and everybody around it: shoppers, the landing consumer, the reconcilers, time, and Redis's bad days."""

import contextlib
import copy
import functools
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymysql

from functions.reconcile.jobs import RebuildRequest, parse_job
from seckill.adapters.mysql import DatabaseError
from seckill.adapters.redis import RedisError, Won
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.protocol.land import land
from seckill.protocol.open_sale import Offer, open_sale
from seckill.protocol.reconcile import Pass
from seckill.protocol.reserve import Reserve
from tests.crowd import at_once
from tests.faults.checks import Promises, broken_now, left_open
from tests.faults.evidence import Evidence, read_evidence
from tests.faults.faults import Trouble
from tests.faults.market import Market, not_counted
from tests.sales import fresh_sku_id

ASK_AGAIN = (Refusal.UNAVAILABLE, Refusal.OUTCOME_UNKNOWN)
# Drift is noted by one pass, mended by the next, and what the mending reveals by two more: six beats are plenty.
MOST_BEATS = 6
# As the queue's redrive rule has it: then the message is a dead letter.
MOST_RECEIVES = 3
# Far more than a run's few reservations and their retries send.
MOST_MESSAGES = 1_000

RedisContents = dict[bytes, bytes]


class Shop:
    """One sale in the market. What shoppers were told is in `promises`; after everything that happens, what may never
    be broken is checked.
    """

    def __init__(self, market: Market, quantity: int) -> None:
        self.market = market
        self.sku_id = fresh_sku_id()
        self.quantity = quantity
        self.promises: Promises = defaultdict(set)
        self.last_answers: dict[str, Answer] = {}
        self.redis_kept = True
        self.earlier: RedisContents = {}
        self._receives: dict[str, int] = {}  # landing messages by key that have failed, and how often
        self._dead_letters = False
        queues = copy.copy(market.front.queues)
        queues._next_rebuild_request = 0.0
        self.front = replace(
            market.front,
            queues=queues,
            reserve=Reserve(market.front.redis, market.front.database, queues, not_counted),
        )

    # -- the sale -----------------------------------------------------------------------------------------------------

    def offer(self, lots: int) -> Offer:
        """As many reservations as `lots` fit."""
        return Offer(self.sku_id, lots * self.quantity, self.quantity)

    def open(self, lots: int) -> None:
        self.front.new_call()
        assert open_sale(self.front.database, self.front.redis, self.offer(lots))

    def evidence(self) -> Evidence | None:
        return read_evidence(self.market, self.sku_id)

    def check(self) -> None:
        """What may never be broken."""
        sale = self.evidence()
        broken = broken_now(sale, self.promises, self.redis_kept) if sale else []
        assert not broken, "\n".join([*broken, f"{sale}"])

    def open_ends(self) -> list[str]:
        sale = self.evidence()
        return left_open(sale) if sale else []

    # -- shoppers -----------------------------------------------------------------------------------------------------

    def ask(self, user: str) -> Answer:
        """One click."""
        answer = self.front.reserve(self.sku_id, user)
        self.told(user, answer)
        self.check()
        if answer == Refused(Refusal.SOLD_OUT):
            assert self.market.redis.exists(f"seckill:{{{self.sku_id}}}:sale"), "nothing is known, and is sold out"
        return answer

    def told(self, user: str, answer: Answer) -> None:
        """What a shopper has seen; 200 and 202 are promises."""
        self.last_answers[user] = answer
        if isinstance(answer, Reserved):
            self.promises[user].add(answer.key)

    def knows(self, user: str) -> bool:
        """Whether the shopper was told to ask again, or was told nothing at all."""
        answer = self.last_answers.get(user)
        return answer is not None and not (isinstance(answer, Refused) and answer.refusal in ASK_AGAIN)

    def deduct(self, user: str) -> str:
        """A shopper whose process died right after the deduction."""
        self.front.new_call()
        won = self.front.redis.reserve(self.sku_id, f"key-of-{user}-{self.sku_id}", user)
        assert isinstance(won, Won)
        return won.deduction.key

    def reserve(self, user: str) -> str:
        """A promise; its key."""
        answer = self.ask(user)
        assert isinstance(answer, Reserved), answer
        return answer.key

    def reserve_and_land(self, user: str) -> str:
        key = self.reserve(user)
        self.front.new_call()
        assert land(self.front.database, self.front.redis, [key], not_counted)[key].finished
        return key

    # -- consumers ----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """The landing queue delivers what it has, each message twice; what fails comes back, or is a dead letter."""
        self._receives.update({body["preDeductKey"]: 0 for body in self.take_all("landing")})
        for _ in range(2 if self._receives else 0):
            self.front.new_call()
            landings = land(self.front.database, self.front.redis, self._receives, not_counted)
            self.check()
        for key, receives in list(self._receives.items()):
            self._receives[key] = receives + 1
            if landings[key].finished:
                del self._receives[key]
            elif receives + 1 == MOST_RECEIVES:
                del self._receives[key]
                self.send_dead_letter(key)

    def send_dead_letter(self, key: str) -> None:
        """A landing message that was received too often."""
        self._dead_letters = True
        body = json.dumps({"preDeductKey": key})
        self.market.sqs.send_message(QueueUrl=self.market.queue_urls["dead_letters"], MessageBody=body)

    def take_all(self, queue: str) -> list[dict[str, Any]]:
        """The bodies of all messages of a queue, which has no more than these."""
        sqs, url = self.market.sqs, self.market.queue_urls[queue]
        bodies = []
        for _ in range(MOST_MESSAGES // 10):
            messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
            if messages:
                handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
                sqs.delete_message_batch(QueueUrl=url, Entries=handles)
            bodies += [json.loads(message["Body"]) for message in messages]
            if len(messages) < 10:
                return bodies
        raise AssertionError(f"{queue} does not run dry")

    def answer_rebuild_requests(self) -> None:
        """The reconcile queue delivers what it has; a request that fails is dropped here, the beat sees to it."""
        for body in self.take_all("reconcile"):
            job = parse_job(json.dumps(body))
            assert isinstance(job, RebuildRequest), body
            try:
                self.market.sweepers[0].reconcile.rebuild(Deadline(30, 5), job.sku_id, job.epoch)
            except (DatabaseError, RedisError):
                continue
            self.check()

    # -- reconcilers and time -----------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Time goes by, then two passes at once."""
        self.age()
        self.two_passes(Deadline(seconds=30, longest_wait=5))
        self.check()

    def two_passes(self, deadline: Deadline) -> list[Pass]:
        """Of two reconcilers, at the same moment."""
        return at_once([functools.partial(sweeper.reconcile, deadline) for sweeper in self.market.sweepers])

    def to_a_fixpoint(self) -> None:
        """Deliveries and beats until nothing is left open."""
        self.answer_rebuild_requests()
        self.deliver()
        for _ in range(MOST_BEATS):
            if not self.open_ends():
                return
            self.beat()
            self.answer_rebuild_requests()
            self.deliver()
        open_ends = self.open_ends()
        assert not open_ends, "\n".join([f"after {MOST_BEATS} beats:", *open_ends, f"{self.evidence()}"])

    def age(self) -> None:
        """Ten minutes go by for rows, holds and the last rebuild; what somebody has locked stays as young as it is."""
        with self.market.database.cursor() as cursor:
            for table, column in (("pre_deduct", "created_at"), ("sale", "rebuilt_at")):
                with contextlib.suppress(pymysql.err.OperationalError):
                    cursor.execute(
                        f"UPDATE seckill_{table} SET {column} = {column} - INTERVAL 10 MINUTE WHERE sku_id = %s",
                        [self.sku_id],
                    )
        held = f"seckill:{{{self.sku_id}}}:held"
        for key, text in self.market.redis.hgetall(held).items():
            if key != b"#epoch":
                hold = json.loads(text)
                self.market.redis.hset(held, key, json.dumps(hold | {"ms": hold["ms"] - 600_000}))

    # -- Redis --------------------------------------------------------------------------------------------------------

    def redis_contents(self) -> RedisContents:
        """All keys, dumped."""
        redis: Any = self.market.redis
        return {key: redis.dump(key) for key in redis.scan_iter()}

    def keep_earlier_copy(self) -> None:
        """What a replica has got so far: a fail-over that loses the last writes goes back to this."""
        self.earlier = self.redis_contents()

    def put_redis(self, contents: RedisContents) -> None:
        """Redis holds exactly this; a server that took over knows no scripts."""
        redis = self.market.redis
        redis.flushall()
        redis.script_flush()
        for key, dump in contents.items():
            redis.restore(key, 0, dump)

    def strike_redis(self, trouble: Trouble) -> None:
        if trouble is not Trouble.KEEPS:
            self.redis_kept = False
            self.put_redis(self.earlier if trouble is Trouble.LOSES else {})

    # -- the end ------------------------------------------------------------------------------------------------------

    def unheard_notices(self) -> set[str]:
        """Keys of notices that nobody has heard of."""
        sale = self.evidence()
        keys = {key for key, _ in sale.notices} if sale else set()
        return keys - {notice["preDeductKey"] for notice in (self.take_all("notices") if keys else ())}

    def clear(self) -> None:
        """Leave nothing behind for the next run: the queues have been read until they were empty, but letters that a
        reconciler could not delete are still in flight.
        """
        if self._dead_letters:
            url = self.market.queue_urls["dead_letters"]
            self.market.sqs.delete_queue(QueueUrl=url)
            self.market.sqs.create_queue(QueueName=url.rpartition("/")[2])
        tables = ("sale", "stock", "pre_deduct", "order", "notice", "top_up")
        deletes = [f"DELETE FROM seckill_{table} WHERE sku_id = {self.sku_id:d}" for table in tables]
        with self.market.database.cursor() as cursor:
            cursor.execute(";".join([*deletes, "DELETE FROM refused_orders"]))
            while cursor.nextset():
                pass
        self.market.redis.flushall()


@contextmanager
def open_shop(market: Market, quantity: int = 1) -> Iterator[Shop]:
    shop = Shop(market, quantity)
    try:
        yield shop
    except BaseException:
        for name in market.queue_urls:
            shop.take_all(name)
        raise
    finally:
        shop.clear()

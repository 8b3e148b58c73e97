"""Steady buyers over HTTP, and the history of what each of them saw."""

import http.client
import itertools
import json
import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

# Longer than any answer of the product (3 s), so that what comes later is a container that stands still.
ANSWER_SECONDS = 4.0
# A buyer looks around for so long before his next request: all of them together are steady, not a storm.
LONGEST_PAUSE_SECONDS = 0.15
# After "ask again" he does so this often, as the answer says, and then gives up.
TRIES = 3
# Those who have asked lately are the ones who ask again, at the same time as themselves or much later.
LATELY = 40
ASKS_AGAIN = 0.3
# The database refuses the orders of users with this name, so their promises end in notices.
UNLUCKY = "unlucky"
UNLUCKY_SHARE = 0.07
USER_HEADER = "X-Debug-User"


class Outcome(Enum):
    """What a buyer knows after a request."""

    OK = "promised"
    FAILED = "refused"
    UNKNOWN = "not known: no answer, or one that says to ask again"


@dataclass(frozen=True)
class Asked:
    """One request. Times in seconds since 1970; `status` is 0 and `code` empty when no answer came."""

    user: str
    sku_id: int
    invoked: float
    ended: float
    status: int
    code: str
    key: str | None

    @property
    def outcome(self) -> Outcome:
        if 200 <= self.status < 300:
            return Outcome.OK
        return Outcome.UNKNOWN if self.status in (0, 503) else Outcome.FAILED


@dataclass
class Market:
    """What all buyers share: the sales they choose from, who asked lately, the history."""

    base_url: str
    sku_ids: Sequence[int] = ()
    history: list[Asked] = field(default_factory=list)
    lately: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=LATELY))
    closing: threading.Event = field(default_factory=threading.Event)


def buy(market: Market, name: str, seed: int) -> None:
    """One buyer after the other, until the market closes; `name` is part of theirs."""
    dice = random.Random(f"{seed} buyer {name}")
    for number in itertools.count(1):
        kind = UNLUCKY if dice.random() < UNLUCKY_SHARE else "user"
        user, sku_id = f"{kind}-{name}-{number}", dice.choice(market.sku_ids)
        if market.lately and dice.random() < ASKS_AGAIN:
            user, sku_id = dice.choice(list(market.lately))
        market.lately.append((user, sku_id))
        for _ in range(TRIES):
            asked = ask(market.base_url, sku_id, user)
            market.history.append(asked)
            if market.closing.wait(dice.uniform(0, LONGEST_PAUSE_SECONDS)):
                return
            if asked.outcome is not Outcome.UNKNOWN:
                break


def ask(base_url: str, sku_id: int, user: str) -> Asked:
    """One request on a connection of its own, so that any worker may get it."""
    invoked = time.time()
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", f"/api/seckill/{sku_id}", headers={USER_HEADER: user})
        answer = connection.getresponse()
        status, code, key = answer.status, *_read(answer.read())
    except (OSError, http.client.HTTPException):
        status, code, key = 0, "", None
    finally:
        connection.close()
    return Asked(user, sku_id, invoked, time.time(), status, code, key)


def _read(body: bytes) -> tuple[str, str | None]:
    """The word of an answer (`status` of a success, `code` of a problem) and the key it names."""
    fields = json.loads(body)
    return fields.get("code") or fields.get("status") or fields.get("message", ""), fields.get("preDeductKey")

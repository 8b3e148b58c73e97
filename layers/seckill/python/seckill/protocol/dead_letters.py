"""Dead letters are rescued without a human, as far as the ledger knows them (docs/protocol.md 6.3)."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import DeadLetters, Letter, QueueError
from seckill.domain.deadline import Deadline
from seckill.domain.event import Event
from seckill.domain.landing_message import parse_landing_message
from seckill.protocol.land import Landing, land

# 500 letters a pass: more wait for the next one.
RECEIVES = 50
RECEIVE_SECONDS = 4.0


@dataclass
class Rescue:
    """What one pass did: letters rescued (and deleted), the bodies of those the ledger does not know, letters whose row
    would not land; `database_away` when the rest was left for the next pass.
    """

    rescued: int = 0
    unknown: list[str] = field(default_factory=list)
    failed: int = 0
    database_away: bool = False
    events: list[Event] = field(default_factory=list)


def rescue_dead_letters(
    database: Database,
    redis: Redis,
    letters: DeadLetters,
    deadline: Deadline,
    count: Callable[[str], None],
    done: Rescue | None = None,
) -> Rescue:
    """Land what is at status 1, delete what is final, keep what the ledger does not know. Raises QueueError: `done` has
    what was done until then.

    A letter is deleted only after the database said so. Unknown ones stay until a person discards them: they are given
    back when all have been looked at; when there are more than one pass can see, the queue's long visibility time-out
    keeps them from blocking the rest.
    """
    done = done or Rescue()
    unknown: list[Letter] = []
    for _ in range(RECEIVES):
        received = letters.receive() if deadline.left() > RECEIVE_SECONDS else []
        if not received:
            for letter in unknown:
                letters.make_visible(letter)
            break
        messages = [parse_landing_message(letter.body) for letter in received]
        landings = land(database, redis, (message["preDeductKey"] for message in messages if message), count)
        done.events += [_event(message, landings[message["preDeductKey"]]) for message in messages if message]
        for letter, message in zip(received, messages, strict=True):
            landing = landings[message["preDeductKey"]] if message else Landing.NO_ROW
            if landing is Landing.NO_ROW:
                unknown.append(letter)
            _finish(letters, letter, landing, done, count)
        if done.database_away:
            break  # no use in taking more letters out
    return done


def _event(message: dict[str, Any], landing: Landing) -> Event:
    sku_id = message.get("skuId")  # for the log only, and only if it can be one
    return Event(message["preDeductKey"], sku_id if type(sku_id) is int else None, f"dead letter: {landing.value}")


def _finish(letters: DeadLetters, letter: Letter, landing: Landing, done: Rescue, count: Callable[[str], None]) -> None:
    if landing.finished:
        letters.delete(letter)
        done.rescued += 1
        count("DeadLetterRescued")
    elif landing is Landing.NO_ROW:
        done.unknown.append(letter.body)
        count("DeadLetterUnknown")
    elif landing is not Landing.FAILED:
        done.failed += 1  # the stale rows' sweep deals with the row itself
    else:
        done.database_away = True
        with contextlib.suppress(QueueError):  # else it comes back by itself, later
            letters.make_visible(letter)

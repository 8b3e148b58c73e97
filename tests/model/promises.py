"""What must always hold: docs/protocol.md, sections 1 and 6.6.

Some promises can be judged in any state. P2, P4 and P7 speak of how things end, so for every state the model asks: if
everybody died now and only the reconciler and users who ask again went on, would all be well in the end? (`aftermath`)

RETRY is not in the protocol's table: a user who asks again while his row lives is not turned away (4.5).
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.rules import (
    Model,
    bumped,
    content_of,
    landed,
    live_key_of,
    loaded,
    pending,
    released,
    with_tombstone,
)
from tests.model.state import LANDED, RESERVED, ROLLED_BACK, Copy, Database, Left, State

# More passes than any state needs; one that is still changing after so many is not settling down.
PASSES = 6


class Promises:
    """Judges the states of one model."""

    def __init__(self, model: Model, *, buyers_may_vanish: bool = False) -> None:
        """`buyers_may_vanish`: Redis is corrupted on purpose, and nobody can know that a buyer was wiped."""
        self.model = model
        self.buyers_may_vanish = buyers_may_vanish
        self.known_endings: dict[State, tuple[str, ...]] = {}

    def broken_in(self, s: State) -> Iterator[str]:
        """The promises that do not hold in `s`."""
        m = self.model
        yield from s.broken
        yield from broken_in_mysql(m, s.database)
        if len(s.copies) == 1 and s.copies[0].sound and s.copies[0].epoch == s.database.epoch:
            yield from audit(m, s.copies[0], s.database).broken()
        yield from self.broken_in_the_end(s)

    def broken_in_the_end(self, s: State) -> tuple[str, ...]:
        # Of the processes nothing but their effects survives, so states that differ only in those end alike.
        dead = s._replace(
            copies=s.copies[-1:], replica=None, calls=(), late=frozenset(), rebuilds=(), left=NOTHING_LEFT
        )
        ending = self.known_endings.get(dead)
        if ending is None:
            rest = aftermath(self.model, dead)
            ending = self.known_endings[dead] = tuple(broken_at_rest(self.model, rest, self.buyers_may_vanish))
        return ending


NOTHING_LEFT = Left(0, 0, 0, 0, 0, 0)


def broken_in_mysql(m: Model, db: Database) -> Iterator[str]:
    """P1, P3, P5, I0 and I1, by MySQL alone."""
    live = sum(m.quantity_of(key) for key, row in enumerate(db.ledger) if row and row.status != ROLLED_BACK)
    used = sum(m.quantity_of(key) for key, row in enumerate(db.ledger) if row and row.epoch == db.epoch)
    if db.remaining < 0 or db.remaining + sum(map(m.quantity_of, db.orders)) != db.total:
        yield "P1"
    if live > db.total:
        yield "P3"
    owners = [m.user_of[key] for key, row in enumerate(db.ledger) if row and row.status != ROLLED_BACK]
    if len(owners) != len(set(owners)):
        yield "P5"
    if db.orders != {key for key, row in enumerate(db.ledger) if row and row.status == LANDED}:
        yield "I0"
    if db.cap - used + live != db.total:
        yield "I1"


class Audit(NamedTuple):
    """The soft equations of 6.6: by how much each is off, and whether Redis has forgotten a ticket that MySQL knows."""

    i3: int
    i4: int
    tickets_lost: bool

    def seen_by(self, m: Model) -> bool:
        """Whether the reconciler asks for a rebuild."""
        return bool(self.i3 or self.i4 or (self.tickets_lost and m.rules.audit_knows_tickets))

    def broken(self) -> Iterator[str]:
        if self.i3:
            yield "I3"
        if self.i4:
            yield "I4"
        if self.tickets_lost:
            yield "I5"


def audit(m: Model, copy: Copy, db: Database) -> Audit:
    """6.6, soft."""
    without_row = sum(m.quantity_of(key) for key in copy.held if db.ledger[key] is None)
    given_up = sum(m.quantity_of(key) for key in copy.held if (row := db.ledger[key]) and row.status == ROLLED_BACK)
    live = later = 0
    for key, row in enumerate(db.ledger):
        ignored = row is not None and row.epoch == db.epoch and row.ticket > copy.ticket
        if row and row.status != ROLLED_BACK and not ignored:
            live += m.quantity_of(key)
        elif row and row.status == ROLLED_BACK and ignored:
            later += m.quantity_of(key)
    newest = max((row.ticket for row in db.ledger if row and row.epoch == db.epoch), default=0)
    return Audit(
        i3=copy.stock + without_row + given_up - (db.total - live),
        i4=db.cap - later - copy.ticket - (copy.stock + given_up),
        tickets_lost=newest > copy.ticket,
    )


def aftermath(m: Model, s: State) -> State:
    """Everybody is dead; the reconciler passes until nothing changes, and users who are rolled back ask again."""
    for _ in range(PASSES):
        after = reconciled(m, s)
        if after == s:
            break
        s = after
    return s


def reconciled(m: Model, s: State) -> State:
    """One pass of section 6: stale rows, holds, then the audit and what it asks for."""
    for key, row in enumerate(s.database.ledger):
        if row and row.status == RESERVED:
            s = s._replace(database=next(landed(m, s.database, key, row), s.database))
    must_rebuild = False
    for key in sorted(s.copies[0].held):
        if s.database.ledger[key] is None:
            db = with_tombstone(m, s, key)
            must_rebuild |= db is None  # dead or poisoned
            s = s._replace(database=db or s.database)
    for key, row in enumerate(s.database.ledger):
        if row and row.status == ROLLED_BACK:
            s = released(m, s, 0, key)
    copy, db = s.copies[0], s.database
    # A user who asks again and finds neither hold nor row asks for a rebuild (4.3).
    must_rebuild |= any(key is not None and key not in copy.held and db.ledger[key] is None for key in copy.buyers)
    landed_keys = {key for key, row in enumerate(db.ledger) if row and row.status == LANDED}
    copy = copy._replace(held=copy.held - landed_keys)
    if must_rebuild or copy.epoch != db.epoch or audit(m, copy, db).seen_by(m):
        epoch = (max(db.epoch, copy.epoch) if m.rules.rebuild_past_redis else db.epoch) + 1
        db = bumped(m, db, epoch, free=db.remaining - pending(m, db))
        if copy.epoch < epoch:
            copy = loaded(m, copy, epoch, content_of(m, db))
    return s._replace(copies=(copy,), database=db)


def broken_at_rest(m: Model, s: State, buyers_may_vanish: bool) -> Iterator[str]:
    """P2, P4, P5 and P7, when nothing moves any more."""
    copy, db = s.copies[0], s.database
    sellable = db.remaining - pending(m, db)
    if copy.epoch != db.epoch or copy.stock != sellable or copy.held or db.cap - copy.ticket != sellable:
        yield "P4"
    for key in s.answered:
        row = db.ledger[key]
        ordered = row is not None and row.status == LANDED and key in db.orders
        told = row is not None and row.status == ROLLED_BACK and key in db.notices and key not in db.orders
        if not ordered and not told:
            yield "P2"
            break
    for user, bought in enumerate(copy.buyers):
        live = live_key_of(m, db, user)
        if bought is not None and bought != live:
            yield "P7"  # Redis answers REPLAY for ever with a key that will never be an order
        if bought is None and live is not None and not buyers_may_vanish:
            yield "P5"  # Redis would let him win a second time; MySQL alone would have to refuse

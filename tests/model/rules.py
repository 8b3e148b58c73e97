"""The rules of docs/protocol.md, each as the steps it allows.

`steps_from(model, state)` lists everything that can happen next. Every field of `Rules` is one rule; switching it off
gives the design that leaves it out, and `mutations.py` says which promise that breaks.

The model allows more than the code does, which is safe: whatever it proves for more behaviours holds for fewer.

- Whoever works in the background is always awake and remembers nothing: any row at status 1 may land at any time
  (queue, dead letters, reconcile), any key without a row may get its tombstone at any time (the sweeper, a call that
  woke up late), and any key at status 2 or 3 may be settled or released at any time, any number of times. So any number
  of reconcilers overlap, and no clock matters.
- A REPLAY may insert with its own epoch and ticket even when its hold is gone.
- A call that dies is a call that never takes another step.
- An insert whose outcome is unknown may run now, later or never.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.faults import lose_redis
from tests.model.search import Step
from tests.model.state import (
    LANDED,
    RESERVED,
    ROLLED_BACK,
    Call,
    Content,
    Copy,
    Database,
    Key,
    Late,
    Rebuild,
    Row,
    State,
    User,
    Won,
    changed,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """One switch per rule; the comment says where docs/protocol.md states it."""

    abandon_keeps_rows: bool = True  # 4.7: abandon never changes an existing row
    abandon_plain_insert: bool = True  # 3: never ON DUPLICATE KEY UPDATE
    tombstone_carries_ticket: bool = True  # 4.7, step 2
    tombstone_within_cap: bool = True  # 4.7, step 3: ticket > cap -> ROLLBACK
    tombstone_extends_cap: bool = True  # 4.7, step 3: cap += quantity
    tombstone_of_current_epoch: bool = True  # 4.7: only for the current epoch
    row_read_first: bool = True  # 4.5
    key_is_primary: bool = True  # 3: a duplicate of the key is seen as one
    poisoned_not_released: bool = True  # 4.6
    insert_fenced: bool = True  # 4.3: epoch = ?
    insert_shared_lock: bool = True  # 4.3: LOCK IN SHARE MODE
    insert_within_cap: bool = True  # 4.3: ? <= cap
    ticket_unique: bool = True  # 3: UNIQUE (sku_id, epoch, ticket)
    user_unique: bool = True  # 3: UNIQUE (sku_id, live_user)
    quantity_of_sale: bool = True  # 3: quantity is a property of the sale
    release_after_status_3: bool = True  # 3, release
    release_checks_hold: bool = True  # 3, release: if held
    release_clears_buyer: bool = True  # 3, release: independently of the hold
    settle_after_status_2: bool = True  # 3, settle
    land_only_status_1: bool = True  # 5, step 2
    land_one_transaction: bool = True  # 5
    roll_back_only_status_1: bool = True  # 6.1, steps 3 and 5
    roll_back_extends_cap: bool = True  # 6.1, step 6
    roll_back_leaves_notice: bool = True  # 6.1, step 7
    rebuild_past_redis: bool = True  # 6.4a: epoch = max(sale.epoch, Redis's epoch) + 1
    rebuild_one_select: bool = True  # 6.4a: remaining - pending by one SELECT
    rebuild_sets_cap: bool = True  # 6.4a: cap = that
    rebuild_discards_unknown: bool = True  # 6.4b
    rebuild_reads_after_commit: bool = True  # 6.4c comes after 6.4a
    rebuild_one_read_view: bool = True  # 6.4c: one REPEATABLE READ transaction
    rebuild_loads_holds: bool = True  # 6.4c: rows at 1 -> held
    rebuild_loads_landed_buyers: bool = True  # 6.4c: users at 1 *or 2* -> buyers
    load_only_newer: bool = True  # 3, load: ignored unless epoch is newer
    load_resets_ticket: bool = True  # 3, load: ticket = 0
    audit_knows_tickets: bool = True  # 6.6: a row of this epoch with a ticket above Redis's
    top_up_by_rebuild: bool = True  # 6.5: never INCRBY live stock


@dataclass(frozen=True, slots=True)
class Model:
    """A run's fixed facts: who asks, what is for sale, and the rules in force."""

    user_of: tuple[User, ...]  # by call, and so by key
    quantity: int = 1
    mixed_quantities: tuple[int, ...] = ()  # by key; only used when quantity is not a property of the sale
    duplicated_loads: int = 0  # how often each rebuild's load arrives once more
    split_brain: bool = False  # after a fail-over the old primary goes on serving for a while
    first_redis_epoch: int = 1
    rules: Rules = field(default_factory=Rules)

    def quantity_of(self, key: Key) -> int:
        """Units of the reservation `key`."""
        return self.quantity if self.rules.quantity_of_sale else self.mixed_quantities[key]


def steps_from(m: Model, s: State) -> Iterator[Step[State]]:
    """Everything that can happen in state `s`."""
    yield from reserve(m, s)
    yield from late_statements(m, s)
    yield from sweep(m, s)
    yield from land(m, s)
    yield from roll_back(m, s)
    yield from settle_and_release(m, s)
    yield from rebuild(m, s)
    if not m.rules.top_up_by_rebuild:
        yield from top_up_by_incr(m, s)
    yield from lose_redis(s, units=m.quantity, split_brain=m.split_brain)


# ---- reserve: docs/protocol.md, section 4 ----------------------------------------------------------------------------


def reserve(m: Model, s: State) -> Iterator[Step[State]]:
    for number, call in enumerate(s.calls):
        if call.at == "start":
            yield from reserve_script(m, s, number)
        elif call.at == "insert":
            yield from insert(m, s, number, call)
        elif call.at == "fence passed":
            db, outcome = inserted(m, s, call, fence_passed=True)
            yield judged(m, s._replace(database=db), number, call, outcome)
        elif call.at == "abandon":
            yield from abandon(m, s, number, call)
        elif call.at == "answer":
            assert call.key is not None
            after = s._replace(answered=s.answered | {call.key}).with_call(number, Call("end", None, 0))
            yield Step(f"call {number} answers 'reserved' with key {call.key}", after)


def reserve_script(m: Model, s: State, number: int) -> Iterator[Step[State]]:
    """Section 3, reserve. UNAVAILABLE and SOLD_OUT change nothing, so they are no steps."""
    user, key = m.user_of[number], number
    for server, copy in enumerate(s.copies):
        if copy.epoch == 0:
            continue
        known = copy.buyers[user]
        if known is not None:
            epoch = s.won_by(known).epoch
            what = f"call {number} of user {user}: reserve script{s.at(server)} -> REPLAY key {known}, epoch {epoch}"
            yield Step(what, s.with_call(number, Call("insert", known, epoch)))
        elif copy.stock >= m.quantity_of(key):
            ticket = copy.ticket + m.quantity_of(key)
            won = Won(copy.epoch, ticket)
            deducted = copy._replace(
                stock=copy.stock - m.quantity_of(key),
                ticket=ticket,
                held=copy.held | {key},
                buyers=changed(copy.buyers, user, key),
            )
            after = s.with_copy(server, deducted)._replace(won=changed(s.won, key, won))
            what = f"call {number} of user {user}: reserve script{s.at(server)} -> WON key {key}, epoch {won.epoch}"
            yield Step(f"{what}, ticket {ticket}", after.with_call(number, Call("insert", key, copy.epoch)))


def insert(m: Model, s: State, number: int, call: Call) -> Iterator[Step[State]]:
    """4.3, the fenced insert. Its shared lock waits while a rebuild holds the sale row."""
    assert call.key is not None
    if m.rules.insert_shared_lock:
        if not sale_locked(m, s):
            db, outcome = inserted(m, s, call)
            yield judged(m, s._replace(database=db), number, call, outcome)
    elif fence_holds(m, s, call):
        after = s.with_call(number, call._replace(at="fence passed"))
        yield Step(f"call {number}: insert of key {call.key} passes the fence", after)
    else:
        yield judged(m, s, number, call, "fenced")
    if s.left.ambiguous_inserts:
        after = s.with_call(number, Call("abandon", call.key, 0))._replace(
            left=s.left._replace(ambiguous_inserts=s.left.ambiguous_inserts - 1),
            late=s.late | {Late("insert", call.key, call.epoch)},
        )
        if not m.rules.release_after_status_3:
            after = released(m, after.with_call(number, Call("end", None, 0)), 0, call.key)
        yield Step(f"call {number}: insert of key {call.key} -> outcome unknown", after)


def fence_holds(m: Model, s: State, call: Call) -> bool:
    """The WHERE of the fenced insert."""
    assert call.key is not None
    if m.rules.insert_fenced and s.database.epoch != call.epoch:
        return False
    return not m.rules.insert_within_cap or s.won_by(call.key).ticket <= s.database.cap


def inserted(m: Model, s: State, call: Call, fence_passed: bool = False) -> tuple[Database, str]:
    """MySQL after the fenced insert, and the cause if there is no new row."""
    key, db = call.key, s.database
    assert key is not None
    if not fence_passed and not fence_holds(m, s, call):
        return db, "fenced" if db.epoch != call.epoch else "over cap"
    claim = Won(call.epoch, s.won_by(key).ticket)
    if not m.rules.key_is_primary and ticket_taken(m, db, claim, but_by=None):
        return db, "ticket taken"
    if db.ledger[key]:
        return db, "duplicate key"
    if ticket_taken(m, db, claim, but_by=key):
        return db, "ticket taken"
    if m.rules.user_unique and live_key_of(m, db, m.user_of[key]) is not None:
        return db, "user has a live row"
    return db._replace(ledger=changed(db.ledger, key, Row(RESERVED, *claim))), "inserted"


def judged(m: Model, s: State, number: int, call: Call, outcome: str) -> Step[State]:
    """4.4 to 4.6: what the call does after its insert."""
    key, db = call.key, s.database
    assert key is not None
    what = f"call {number}: insert of key {key}, epoch {call.epoch} -> {outcome}"
    row = db.ledger[key]
    lives = row is not None and row.status != ROLLED_BACK
    if outcome == "inserted" or (lives and (m.rules.row_read_first or outcome == "duplicate key")):
        return Step(what, s.with_call(number, Call("answer", key, 0)))
    if lives:
        s = s._replace(broken=s.broken | {"RETRY"})
    if outcome == "user has a live row":
        live = live_key_of(m, db, m.user_of[key])
        return Step(what, s.with_call(number, Call("answer", live, 0)))
    if outcome == "fenced" and not m.rules.tombstone_of_current_epoch:
        return Step(what, s.with_call(number, Call("abandon", call.key, 0)))
    if outcome in ("over cap", "ticket taken") and not m.rules.poisoned_not_released:
        s = released(m, s, 0, key)
    return Step(what, s.with_call(number, Call("end", None, 0)))


def abandon(m: Model, s: State, number: int, call: Call) -> Iterator[Step[State]]:
    """4.7, by the call itself: afterwards it reads the row."""
    key = call.key
    assert key is not None
    db = s.database
    if not m.rules.abandon_keeps_rows and (row := db.ledger[key]) and row.status == RESERVED:
        db = given_up(m, db, key, row)
    elif not m.rules.abandon_plain_insert and (other := holder_of_ticket(m, s, key)) is not None:
        row = db.ledger[other]
        assert row is not None
        db = given_up(m, db, other, row)
    else:
        db = with_tombstone(m, s, key) or db
    row = db.ledger[key]
    after = Call("answer", key, 0) if row and row.status in (RESERVED, LANDED) else Call("end", None, 0)
    what = f"call {number}: abandon key {key} -> {f'status {row.status}' if row else 'no row'}"
    yield Step(what, s._replace(database=db).with_call(number, after))


def with_tombstone(m: Model, s: State, key: Key) -> Database | None:
    """4.7, the transaction: MySQL with a tombstone, None when there is a row or the key is dead or poisoned."""
    db, won = s.database, s.won_by(key)
    if db.ledger[key]:
        return None
    if m.rules.tombstone_of_current_epoch and won.epoch != db.epoch:
        return None
    row = Row(ROLLED_BACK, *won)
    if not m.rules.tombstone_carries_ticket:
        row = Row(ROLLED_BACK, 0, 0)
    elif ticket_taken(m, db, won, but_by=key) or (m.rules.tombstone_within_cap and won.ticket > db.cap):
        return None
    cap = db.cap + m.quantity_of(key) if m.rules.tombstone_extends_cap else db.cap
    return db._replace(cap=cap, ledger=changed(db.ledger, key, row))


def sweep(m: Model, s: State) -> Iterator[Step[State]]:
    """6.2: a key without a row is abandoned. (Nothing tells the model how old the hold is.)"""
    for key, won in enumerate(s.won):
        if won and not s.database.ledger[key] and (db := with_tombstone(m, s, key)):
            yield Step(f"sweeper abandons key {key}", s._replace(database=db))


def late_statements(m: Model, s: State) -> Iterator[Step[State]]:
    """A statement nobody waits for any more runs after all."""
    for late in s.late:
        rest = s.late - {late}
        if late.what == "insert" and not sale_locked(m, s):
            db, outcome = inserted(m, s, Call("insert", late.key, late.epoch))
            if outcome == "inserted":
                yield Step(f"the insert of key {late.key} runs late", s._replace(database=db, late=rest))
        elif late.what == "incr":
            for server, copy in enumerate(s.copies):
                if copy.epoch:
                    after = s.with_copy(server, copy._replace(stock=copy.stock + m.quantity))
                    yield Step(f"top-up: INCRBY {m.quantity}{s.at(server)}", after._replace(late=rest))


# ---- land, roll back, settle, release: docs/protocol.md, sections 5, 6.1 and 3 ---------------------------------------


def land(m: Model, s: State) -> Iterator[Step[State]]:
    for key, row in enumerate(s.database.ledger):
        if row and (row.status == RESERVED or (not m.rules.land_only_status_1 and key not in s.database.orders)):
            for db in landed(m, s.database, key, row):
                yield Step(f"land key {key}, remaining {db.remaining}", s._replace(database=db))


def landed(m: Model, db: Database, key: Key, row: Row) -> Iterator[Database]:
    """Section 5, the transaction for one row."""
    finished = db._replace(ledger=changed(db.ledger, key, row._replace(status=LANDED)))
    if key in db.orders:
        yield finished
    elif db.remaining >= m.quantity_of(key):
        order_only = db if not m.rules.land_one_transaction else finished
        yield order_only._replace(remaining=db.remaining - m.quantity_of(key), orders=db.orders | {key})


def roll_back(m: Model, s: State) -> Iterator[Step[State]]:
    """6.1, after the last attempt. Its notice is written in the same transaction."""
    if not s.left.roll_backs:
        return
    for key, row in enumerate(s.database.ledger):
        if not row or s.database.remaining < m.quantity_of(key):
            continue
        if row.status == RESERVED or (row.status == LANDED and not m.rules.roll_back_only_status_1):
            db = given_up(m, s.database, key, row)
            if not m.rules.roll_back_extends_cap:
                db = db._replace(cap=s.database.cap)
            if m.rules.roll_back_leaves_notice:
                db = db._replace(notices=db.notices | {key})
            left = s.left._replace(roll_backs=s.left.roll_backs - 1)
            yield Step(f"roll back key {key}", s._replace(database=db, left=left))


def given_up(m: Model, db: Database, key: Key, row: Row) -> Database:
    """Status 3 for an existing row, its units to the cap."""
    ledger = changed(db.ledger, key, row._replace(status=ROLLED_BACK))
    return db._replace(cap=db.cap + m.quantity_of(key), ledger=ledger)


def settle_and_release(m: Model, s: State) -> Iterator[Step[State]]:
    """After reading a final status; again and again, by anybody."""
    for key, row in enumerate(s.database.ledger):
        if row is None:
            continue
        for server, copy in enumerate(s.copies):
            if row.status == ROLLED_BACK and copy.epoch:
                after = released(m, s, server, key)
                if after != s:
                    yield Step(f"release key {key}{s.at(server)}, stock {after.copies[server].stock}", after)
            elif key in copy.held and (row.status == LANDED or not m.rules.settle_after_status_2):
                after = s.with_copy(server, copy._replace(held=copy.held - {key}))
                yield Step(f"settle key {key}{s.at(server)}", after)


def released(m: Model, s: State, server: int, key: Key) -> State:
    """Section 3, release. Breaks P6 when it gives back what it must not."""
    copy, user = s.copies[server], m.user_of[key]
    if copy.epoch == 0:
        return s
    row = s.database.ledger[key]
    gives_back = key in copy.held or not m.rules.release_checks_hold
    if gives_back and (key not in copy.held or row is None or row.status != ROLLED_BACK):
        s = s._replace(broken=s.broken | {"P6"})
    buyers = copy.buyers
    if buyers[user] == key and (gives_back or m.rules.release_clears_buyer):
        buyers = changed(buyers, user, None)
    stock = copy.stock + m.quantity_of(key) if gives_back else copy.stock
    return s.with_copy(server, copy._replace(stock=stock, held=copy.held - {key}, buyers=buyers))


# ---- rebuild and top-up: docs/protocol.md, sections 6.4 and 6.5 ------------------------------------------------------


def rebuild(m: Model, s: State) -> Iterator[Step[State]]:
    for number, one in enumerate(s.rebuilds):
        name = f"rebuild {number}"
        if one.at in ("start", "read early"):
            if not m.rules.rebuild_reads_after_commit and one.at == "start":
                read = Rebuild("read early", 0, content_of(m, s.database), 0)
                yield Step(f"{name} reads MySQL", s.with_rebuild(number, read))
            elif not sale_locked(m, s):
                yield from bump(m, s, number, one)
        elif one.at == "locked":
            assert one.content is not None
            db = bumped(m, s.database, one.epoch, free=one.content.stock - pending(m, s.database))
            read = Rebuild("load", one.epoch, content_of(m, db)._replace(stock=max(db.cap, 0)), 0)
            after = s._replace(database=db).with_rebuild(number, read)
            yield Step(f"{name} reads pending, COMMIT, epoch {one.epoch}", after)
        elif one.at == "bumped" and not m.rules.rebuild_one_read_view:
            read = Rebuild("remaining read", one.epoch, Content(s.database.remaining, frozenset(), ()), 0)
            yield Step(f"{name} reads remaining", s.with_rebuild(number, read))
        elif one.at == "remaining read":
            assert one.content is not None
            stock = max(one.content.stock - pending(m, s.database), 0)
            read = Rebuild("load", one.epoch, content_of(m, s.database)._replace(stock=stock), 0)
            yield Step(f"{name} reads the ledger", s.with_rebuild(number, read))
        elif one.at == "bumped":
            read = Rebuild("load", one.epoch, one.content or content_of(m, s.database), 0)
            yield Step(f"{name} reads MySQL", s.with_rebuild(number, read))
        elif one.at == "load":
            yield from load(m, s, number, one)


def bump(m: Model, s: State, number: int, one: Rebuild) -> Iterator[Step[State]]:
    """6.4 (0) and (a). Redis's epoch was read before the transaction, so it may be an old one."""
    seen = (m.first_redis_epoch, *(copy.epoch for copy in s.copies)) if m.rules.rebuild_past_redis else (0,)
    for epoch in {max(s.database.epoch, redis_epoch) + 1 for redis_epoch in seen}:
        if not m.rules.rebuild_one_select:
            first_read = Rebuild("locked", epoch, Content(s.database.remaining, frozenset(), ()), 0)
            yield Step(f"rebuild {number} locks the sale, reads remaining", s.with_rebuild(number, first_read))
            continue
        after = s.with_rebuild(number, Rebuild("bumped", epoch, one.content, 0))
        for units in (0, m.quantity) if s.left.top_ups and m.rules.top_up_by_rebuild else (0,):
            topped_up = s.database._replace(total=s.database.total + units, remaining=s.database.remaining + units)
            free = topped_up.remaining - pending(m, topped_up)
            if free < 0:
                continue
            left = s.left._replace(top_ups=0) if units else s.left
            what = f"rebuild {number}: COMMIT, epoch {epoch}" + (f", top-up {units}" if units else "")
            yield Step(what, after._replace(database=bumped(m, topped_up, epoch, free), left=left))
        if not m.rules.rebuild_discards_unknown:
            yield Step(f"rebuild {number}: COMMIT fails, goes on with epoch {epoch}", after)


def bumped(m: Model, db: Database, epoch: int, free: int) -> Database:
    return db._replace(epoch=epoch, cap=free if m.rules.rebuild_sets_cap else db.cap)


def content_of(m: Model, db: Database) -> Content:
    """6.4 (c), one consistent read."""
    held = frozenset(key for key, row in enumerate(db.ledger) if row and row.status == RESERVED)
    buyers: list[Key | None] = [None] * (max(m.user_of) + 1)
    for key, row in enumerate(db.ledger):
        if row and (row.status == RESERVED or (row.status == LANDED and m.rules.rebuild_loads_landed_buyers)):
            buyers[m.user_of[key]] = key
    stock = max(db.remaining - pending(m, db), 0)
    return Content(stock, held if m.rules.rebuild_loads_holds else frozenset(), tuple(buyers))


def load(m: Model, s: State, number: int, one: Rebuild) -> Iterator[Step[State]]:
    """6.4 (d); the script may reach any server that answers, and arrive again later."""
    assert one.content is not None
    for server, copy in enumerate(s.copies):
        applied = copy.epoch < one.epoch or not m.rules.load_only_newer
        # A second load that is applied because Redis lost the first one brings an older state back.
        sound = copy.sound if copy.epoch >= one.epoch else len(s.copies) == 1 and one.loads == 0
        after = s.with_copy(server, loaded(m, copy, one.epoch, one.content, sound)) if applied else s
        again = one._replace(loads=one.loads + 1) if one.loads < m.duplicated_loads else Rebuild("end", 0, None, 0)
        fate = f"stock {one.content.stock}" if applied else "ignored"
        yield Step(f"rebuild {number} loads epoch {one.epoch}{s.at(server)}: {fate}", after.with_rebuild(number, again))


def loaded(m: Model, copy: Copy, epoch: int, content: Content, sound: bool = True) -> Copy:
    """Section 3, load."""
    ticket = 0 if m.rules.load_resets_ticket else copy.ticket
    return Copy(epoch, content.stock, ticket, content.held, content.buyers, sound)


def top_up_by_incr(m: Model, s: State) -> Iterator[Step[State]]:
    """What 6.5 forbids: total and cap in MySQL, then INCRBY on live stock."""
    if s.left.top_ups:
        db, units = s.database, m.quantity
        db = db._replace(total=db.total + units, remaining=db.remaining + units, cap=db.cap + units)
        left = s.left._replace(top_ups=0)
        yield Step(f"top-up {units}: COMMIT", s._replace(database=db, left=left, late=s.late | {Late("incr", 0, 0)}))


# ---- questions and small changes -------------------------------------------------------------------------------------


def pending(m: Model, db: Database) -> int:
    """Units at status 1."""
    return sum(m.quantity_of(key) for key, row in enumerate(db.ledger) if row and row.status == RESERVED)


def live_key_of(m: Model, db: Database, user: User) -> Key | None:
    """The key of the user's row at status 1 or 2."""
    for key, row in enumerate(db.ledger):
        if row and row.status != ROLLED_BACK and m.user_of[key] == user:
            return key
    return None


def ticket_taken(m: Model, db: Database, claim: Won, *, but_by: Key | None) -> bool:
    """Whether UNIQUE (sku_id, epoch, ticket) refuses a row; the row of `but_by` does not count."""
    if not m.rules.ticket_unique:
        return False
    return any(row and row[1:] == claim and key != but_by for key, row in enumerate(db.ledger))


def holder_of_ticket(m: Model, s: State, key: Key) -> Key | None:
    """The other key whose row at status 1 has this key's epoch and ticket."""
    for other, row in enumerate(s.database.ledger):
        if other != key and row == Row(RESERVED, *s.won_by(key)):
            return other
    return None


def sale_locked(m: Model, s: State) -> bool:
    """Whether a rebuild keeps the sale row between two statements; with one SELECT it does everything in one step."""
    return not m.rules.rebuild_one_select and any(one.at == "locked" for one in s.rebuilds)

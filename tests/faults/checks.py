"""P1-P7, I0-I5 and the gap of docs/protocol.md 1 and 6.6, counted from the rows, the copy and the clients' own log."""

from collections import Counter
from collections.abc import Iterator

from tests.faults.evidence import Evidence

TOMBSTONE = "abandoned"

# What clients were told: the key of each 200 and 202, by user.
Promises = dict[str, set[str]]


def broken_now(sale: Evidence, promises: Promises, redis_kept: bool) -> list[str]:
    """What may never be broken, not for a moment. `redis_kept`: Redis has lost nothing so far, so it may not drift."""
    return [*_books(sale), *_promises(sale, promises), *(_drift(sale) if redis_kept else ())]


def left_open(sale: Evidence) -> list[str]:
    """What is not yet finished: P4 and the gap. Nothing when activity has stopped and the reconciler has run."""
    return list(_open_ends(sale))


def _books(sale: Evidence) -> Iterator[str]:
    ordered = sum(quantity for _, _, quantity in sale.orders)
    landed = {(row.key, row.user, row.quantity) for row in sale.rows.values() if row.status == 2}
    if landed != set(sale.orders) or len(sale.orders) != len(set(sale.orders)):
        yield f"I0: landed {landed} and orders {sale.orders} are not the same"
    used = sum(row.quantity for row in sale.rows.values() if row.epoch == sale.epoch)
    if sale.cap - used + sale.units(1, 2) != sale.total:
        yield f"I1: cap {sale.cap} - used {used} + live {sale.units(1, 2)} <> total {sale.total}"
    if sale.remaining + ordered != sale.total:
        yield f"I2: remaining {sale.remaining} + ordered {ordered} <> total {sale.total}"
    if not 0 <= ordered <= sale.total or sale.remaining < sale.units(1):
        yield f"P1: ordered {ordered}, reserved {sale.units(1)}, remaining {sale.remaining} of {sale.total}"
    if sale.units(1, 2) > sale.total:
        yield f"P3: {sale.units(1, 2)} units live of {sale.total}"
    users = Counter(row.user for row in sale.rows.values() if row.live)
    if users and max(users.values()) > 1:
        yield f"P5: {users} have more than one live row"


def _promises(sale: Evidence, promises: Promises) -> Iterator[str]:
    """P2, P3, P5 as the clients see them."""
    notices = Counter(key for key, _ in sale.notices)
    owed = sorted(row.key for row in sale.rows.values() if row.status == 3 and row.reason != TOMBSTONE)
    if sorted(notices.elements()) != owed:
        yield f"P2: rolled back {owed}, notices {notices}"
    outstanding = 0
    for user, keys in promises.items():
        kept = [key for key in keys if key not in notices]
        outstanding += len(kept) * sale.quantity
        if len(kept) > 1:
            yield f"P5: {user} was promised {kept}"
        for key in keys:
            row = sale.rows.get(key)
            if row is None or row.user != user or (row.status == 3 and key not in notices):
                yield f"P2: {user} was promised {key}, and there is {row}"
    if outstanding > sale.total:
        yield f"P3: {outstanding} units promised of {sale.total}"


def _drift(sale: Evidence) -> Iterator[str]:
    """P6 as it shows: in a copy that lost nothing, a unit is given back exactly once. I3 to I5 with all holds."""
    copy = sale.copy
    if copy.epoch != sale.epoch:
        return  # being rebuilt: nothing to compare
    stock, ticket = int(copy.sale["stock"]), int(copy.sale["ticket"])
    free = sum(hold["quantity"] for key, hold in copy.held.items() if key not in sale.rows)
    back = sum(hold["quantity"] for key, hold in copy.held.items() if key in sale.rows and sale.rows[key].status == 3)
    later = [row for row in sale.rows.values() if row.epoch == sale.epoch and row.ticket > ticket]
    if stock + free + back != sale.total - sale.units(1, 2) + sum(row.quantity for row in later if row.live):
        yield f"I3: stock {stock} + held {free} + to give back {back} <> total {sale.total} - live {sale.units(1, 2)}"
    if sale.cap - sum(row.quantity for row in later if row.status == 3) - ticket != stock + back:
        yield f"I4: cap {sale.cap} - ticket {ticket} <> stock {stock} + to give back {back}"
    if later:
        yield f"I5: {later} have tickets that the copy has not dealt"


def _open_ends(sale: Evidence) -> Iterator[str]:
    pending = sorted(row.key for row in sale.rows.values() if row.status == 1)
    if pending:
        yield f"gap: {pending} have neither an order nor a notice"
    copy = sale.copy
    if copy.epoch != sale.epoch or copy.sale["state"] != sale.state:
        yield f"P4: the copy is of epoch {copy.epoch}, {copy.sale.get('state')}; {sale.epoch}, {sale.state} in MySQL"
        return
    if int(copy.sale["stock"]) != sale.remaining - sale.units(1):
        yield f"P4: Redis stock {copy.sale['stock']}, remaining {sale.remaining}, pending {sale.units(1)}"
    if copy.held:
        yield f"P4: held {copy.held}"
    if copy.buyers != {row.user: row.key for row in sale.rows.values() if row.live}:
        yield f"P7: buyers {copy.buyers} are not those of the live rows"
    yield from _drift(sale)
    if not all(sent for _, sent in sale.notices):
        yield f"notices not sent: {sale.notices}"

"""Actions of a person who looks after the books: audit, dead letters, and deciding a reservation by hand."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger

from functions.sale_admin.arguments import Arguments, Refusal, ascii_in, sku_id_in, text_in
from functions.sale_admin.stores import Stores
from seckill.adapters.sqs import Depth, Letter, QueueError
from seckill.domain.landing_message import LONGEST_KEY, parse_landing_message
from seckill.protocol.abandon import TOMBSTONE_REASON
from seckill.protocol.audit import audit_sale
from seckill.protocol.land import Landing, land
from seckill.protocol.ledger import read_by_key
from seckill.protocol.roll_back import RollBack, roll_back

DECISIONS = ("land", "roll_back", "discard")
LONGEST_REASON = 200
# 200 letters looked at in one call; more than a person reads.
RECEIVES = 20

Answer = dict[str, Any]

# The handler's: Powertools has one by service, so that keys appended here are in the handler's line.
logger = Logger(service="sale_admin")


def run_audit(stores: Stores, arguments: Arguments) -> Answer:
    """The audit of one sale, or of all on offer."""
    asked = "skuId" in arguments
    skus = [sku_id_in(arguments)] if asked else [row["sku_id"] for row in stores.database.rows("sale.on_offer")]
    audits = [audit_sale(stores.database, stores.redis, sku_id, stores.stale_seconds) for sku_id in skus]
    if asked and audits == [None]:
        raise Refusal("NO_SUCH_SALE", f"there is no sale of SKU {skus[0]}")
    return {
        "audits": [audit.as_json() for audit in audits if audit],
        "queueDepth": _depth_if_known(stores.letters.landing_depth),
        "deadLetters": _depth_if_known(stores.letters.depth),
    }


def _depth_if_known(read: Callable[[], Depth]) -> Answer | None:
    """None while SQS is away: the books do not depend on it, and are shown all the same."""
    try:
        return read().as_json()
    except QueueError:
        return None


def run_dead_letters(stores: Stores, arguments: Arguments) -> Answer:
    """The dead letters that can be seen now, with what the ledger says; reconcile gives its own back after a while."""
    shown = []
    for letter in _visible_letters(stores):
        stores.letters.make_visible(letter)
        key = parse_landing_message(letter.body).get("preDeductKey")
        row = read_by_key(stores.database, key) if key else None
        shown.append(
            {
                "messageId": letter.message_id,
                "body": letter.body,
                "preDeductKey": key,
                "ledger": row.status.name if row else None,
            }
        )
    return {"letters": shown, "deadLetters": stores.letters.depth().as_json()}


def run_resolve(stores: Stores, arguments: Arguments) -> Answer:
    """Decide a reservation by hand: land it, roll it back with a notice, or discard its unknown dead letter."""
    key = ascii_in(arguments, "preDeductKey", LONGEST_KEY)
    decision, reason = arguments.get("decision"), text_in(arguments, "reason", LONGEST_REASON)
    if decision not in DECISIONS:
        raise Refusal("INVALID_REQUEST", f"decision must be one of {', '.join(DECISIONS)}")
    if reason == TOMBSTONE_REASON:
        raise Refusal("INVALID_REQUEST", f"{TOMBSTONE_REASON!r} is what the ledger says of keys never promised")
    row = read_by_key(stores.database, key)
    if row:
        logger.append_keys(sku_id=row.sku_id)
    if decision == "discard":
        if row:
            raise Refusal("INVALID_REQUEST", "the ledger knows this key: land it or roll it back")
        _discard(stores, key)
    elif row is None:
        raise Refusal("NO_SUCH_RESERVATION", "the ledger does not know this key")
    elif decision == "land":
        landing = land(stores.database, stores.redis, [key], lambda _: None)[key]
        if landing not in (Landing.LANDED, Landing.ALREADY_LANDED):
            raise Refusal("NOT_LANDED", landing.value)
    else:
        verdict = roll_back(stores.database, stores.redis, key, row.sku_id, reason)
        if verdict is not RollBack.ROLLED_BACK:
            raise Refusal("NOT_ROLLED_BACK", verdict.value)
    now = read_by_key(stores.database, key)
    return {"preDeductKey": key, "decision": decision, "ledger": now.status.name if now else None}


def _discard(stores: Stores, key: str) -> None:
    """Delete the letter of this key; one that is no landing message goes by its message id."""
    found = False
    for letter in _visible_letters(stores):
        if key in (parse_landing_message(letter.body).get("preDeductKey"), letter.message_id):
            stores.letters.delete(letter)
            found = True
        else:
            stores.letters.make_visible(letter)
    if not found:
        raise Refusal(
            "NOT_FOUND", "no dead letter of this key can be seen now; reconcile gives each back after a while"
        )


def _visible_letters(stores: Stores) -> list[Letter]:
    """All letters that can be received now; the caller gives them back."""
    seen: list[Letter] = []
    for _ in range(RECEIVES):
        received = stores.letters.receive()
        if not received:
            break
        seen += received
    return seen

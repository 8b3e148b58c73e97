"""Roll-back notices leave the outbox at least once, marked when sent."""

from seckill.adapters.mysql import Database
from seckill.adapters.sns import NoticeTopic
from seckill.domain.deadline import Deadline
from seckill.protocol.ledger import text

# Enough for any sale's roll-backs of half a minute; more wait for the next pass.
NOTICES = 200
PUBLISH_SECONDS = 3.0


def publish_notices(database: Database, topic: NoticeTopic, deadline: Deadline) -> int:
    """Publish unsent notices, oldest first; how many. Raises NoticeError, DatabaseError: the rest waits."""
    sent = 0
    for row in database.rows("reconcile.unsent_notices", NOTICES):
        if deadline.left() < PUBLISH_SECONDS:
            break
        key = text(row["pre_deduct_key"])
        topic.publish(
            {"preDeductKey": key, "skuId": row["sku_id"], "user": text(row["user_id"]), "reason": row["reason"]}
        )
        database.execute("reconcile.mark_sent", key)
        sent += 1
    return sent

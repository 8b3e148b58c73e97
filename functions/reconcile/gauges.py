"""The books as CloudWatch gauges: sums over all sales, and by SKU for those on offer."""

from seckill.adapters.metrics import Metrics
from seckill.protocol.audit import Audit
from seckill.protocol.reconcile import Pass

# CloudWatch charges by metric: the by-SKU gauges stop here, the sums do not.
SKUS = 100


def publish_gauges(metrics: Metrics, done: Pass) -> None:
    """One value of each gauge for the service, and for each open sale."""
    if not done.audits:
        return
    totals: dict[str, int] = {}
    opened = [audit for audit in done.audits if audit.state == "open"][:SKUS]
    for audit in done.audits:
        for name, value in _gauges(audit).items():
            totals[name] = totals.get(name, 0) + value
    for name, value in totals.items():
        metrics.gauge(name, value)
    for audit in opened:
        for name, value in _gauges(audit).items():
            metrics.gauge(name, value, audit.sku_id)


def _gauges(audit: Audit) -> dict[str, int]:
    gauges = {
        "AccountGap": audit.gap,
        # A difference counts once a later audit of the same epoch has seen it again.
        "AccountDrift": audit.drift if audit.drift_confirmed else 0,
        "LedgerPending": audit.books.reserved,
        "LedgerLanded": audit.books.landed,
        "LedgerRolledBack": audit.books.rolled_back,
        "NoticePending": audit.notices_pending,
    }
    if audit.redis is not None:
        gauges["RedisStock"] = audit.redis.sale.stock
    return gauges

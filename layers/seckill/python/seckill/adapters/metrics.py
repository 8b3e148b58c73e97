"""CloudWatch metrics in the embedded format, namespace `Seckill`, dimension `service`."""

import contextlib
from collections.abc import Iterator

from aws_lambda_powertools import Metrics as Emf
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit


class Metrics:
    """Counts of one service, written out at the end of each invocation. A metric that fails never fails a request."""

    def __init__(self, service: str) -> None:
        self._emf = Emf(namespace="Seckill", service=service)
        self._service = service
        self._cold = True

    def count(self, name: str) -> None:
        """One more of `name`."""
        with contextlib.suppress(Exception):
            self._emf.add_metric(name=name, unit=MetricUnit.Count, value=1)

    def gauge(self, name: str, value: float, sku_id: int | None = None) -> None:
        """A gauge of the service, or of one SKU of it: a line of its own, since its dimensions differ."""
        with contextlib.suppress(Exception):
            line = EphemeralMetrics(namespace="Seckill", service=self._service)
            if sku_id is not None:
                line.add_dimension(name="sku", value=str(sku_id))
            line.add_metric(name=name, unit=MetricUnit.Count, value=value)
            line.flush_metrics()

    @contextlib.contextmanager
    def invocation(self) -> Iterator[None]:
        """One invocation of the function: counts a cold start, and writes all counts when it ends."""
        if self._cold:
            self._cold = False
            self.count("ColdStart")
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                if self._emf.metric_set:
                    self._emf.flush_metrics()

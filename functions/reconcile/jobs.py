"""What a message on the beat queue or the reconcile queue asks for."""

import json
from dataclasses import dataclass
from typing import Literal

from seckill.domain.sale import parse_sku_id


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """A sale whose copy was seen wrong, at this epoch; None when there was no whole copy."""

    sku_id: int
    epoch: int | None


def parse_job(body: str) -> RebuildRequest | Literal["beat"] | None:
    """The job; None when the body is none."""
    try:
        job = json.loads(body)
        kind = job.get("job")
        if kind == "beat":
            return "beat"
        epoch = job.get("epoch")
        if kind == "rebuild" and (epoch is None or (isinstance(epoch, int) and not isinstance(epoch, bool))):
            return RebuildRequest(parse_sku_id(str(job.get("skuId"))), epoch)
    except (ValueError, AttributeError, RecursionError):
        pass  # not JSON or too deep, no object, no SKU
    return None

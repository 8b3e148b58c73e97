"""What a reconcile pass did to one reservation: a line of its timeline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """`what` in a few words; `sku_id` is None when only the key is known."""

    key: str
    sku_id: int | None
    what: str

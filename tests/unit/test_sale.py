"""The sale's words as plain values."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seckill.domain.sale import (
    LARGEST_EPOCH_LEAD,
    LARGEST_EXACT_INTEGER,
    SaleView,
    iso_time,
    next_epoch,
    parse_sku_id,
    parse_time,
)
from seckill.protocol.open_sale import Offer

OPENS, CLOSES = 1_000, 2_000


def view(now: int, stock: int = 5, state: str = "open", quantity: int = 1, bounded: bool = True) -> SaleView:
    """A sale open from 1 s to 2 s after 1970, or without bounds."""
    return SaleView(
        state=state, epoch=1, stock=stock, ticket=0, quantity=quantity, now=now,
        opens_at=OPENS if bounded else None, closes_at=CLOSES if bounded else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sale", "phase"),
    [
        (view(now=OPENS - 1), "SCHEDULED"),
        (view(now=OPENS), "OPEN"),
        (view(now=CLOSES - 1), "OPEN"),
        (view(now=CLOSES), "CLOSED"),
        (view(now=0, bounded=False), "OPEN"),
        (view(now=OPENS, state="closed"), "CLOSED"),
        (view(now=OPENS - 1, state="closed"), "CLOSED"),
        (view(now=OPENS, stock=0), "SOLD_OUT"),
        (view(now=OPENS, stock=1, quantity=2), "SOLD_OUT"),
        (view(now=OPENS, stock=2, quantity=2), "OPEN"),
        (view(now=OPENS - 1, stock=0), "SCHEDULED"),
        (view(now=CLOSES, stock=0), "CLOSED"),
    ],
)
def test_a_sale_shows_the_phase_a_shopper_would_name(sale: SaleView, phase: str) -> None:
    assert sale.phase == phase


@pytest.mark.parametrize("text", ["1", "1001", "9223372036854775807"])
def test_a_sku_is_a_positive_number_of_63_bits(text: str) -> None:
    assert parse_sku_id(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "0",
            "01",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1\n",
            "1.0",
            "1e3",
            "0x1",
            "abc",
            "1_000",
            "١",
            "１",
            "1;DROP TABLE x",
        ],
        *["9223372036854775808", "99999999999999999999", "1" * 5_000],
    ],
)
def test_anything_else_is_no_sku(text: str) -> None:
    with pytest.raises(ValueError, match="SKU"):
        parse_sku_id(text)


@pytest.mark.parametrize(
    ("known", "observed", "epoch"),
    [
        (0, None, 1),
        (7, None, 8),
        (7, 3, 8),
        (7, 7, 8),
        (7, 9, 10),
        (7, 7 + LARGEST_EPOCH_LEAD, 8 + LARGEST_EPOCH_LEAD),
        (7, 8 + LARGEST_EPOCH_LEAD, 8),  # garbage: no generation can be so far ahead
        (7, LARGEST_EXACT_INTEGER + 1, 8),
    ],
)
def test_the_next_epoch_is_after_mysqls_and_after_any_believable_one_of_redis(
    known: int, observed: int | None, epoch: int
) -> None:
    assert next_epoch(known, observed) == epoch


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00+00:00", 0),
        ("1970-01-01T00:00:00.250Z", 250),
        ("1970-01-01T08:00:01+08:00", 1_000),
        ("1969-12-31T19:00:00-05:00", 0),
        ("2026-11-11T20:00:00+08:00", 1_794_398_400_000),
    ],
)
def test_a_time_with_an_offset_is_a_moment(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize("text", ["2026-11-11T20:00:00", "2026-11-11", "tomorrow", "", "1794398400"])
def test_a_time_without_an_offset_or_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset|isoformat"):
        parse_time(text)


@pytest.mark.parametrize(
    "text",
    ["1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00+00:01", "9999-12-31T23:00:00-05:00", "0001-01-01T00:00:00+23:59"],
)
def test_a_time_that_a_sale_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="1970 to 9999"):
        parse_time(text)
    assert iso_time(parse_time("9999-12-31T23:59:59.999Z")) == "9999-12-31T23:59:59.999+00:00"


@given(
    st.datetimes(
        min_value=datetime(1970, 1, 2), max_value=datetime(9999, 12, 30),
        timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    )
)  # fmt: skip
def test_a_time_comes_back_as_it_was_to_the_millisecond(moment: datetime) -> None:
    milliseconds = parse_time(moment.isoformat())
    text = iso_time(milliseconds)
    assert text is not None
    assert parse_time(text) == milliseconds
    assert abs(datetime.fromisoformat(text) - moment) < timedelta(milliseconds=1)
    assert datetime.fromisoformat(text).tzinfo == UTC


def test_no_time_is_shown_as_none() -> None:
    assert iso_time(None) is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"total": -1}, "total"),
        ({"total": 3, "quantity": 2}, "total"),
        ({"total": 3, "quantity": 0}, "quantity"),
        ({"total": 3, "quantity": -1}, "quantity"),
        ({"total": 3, "opens_at": 5, "closes_at": 5}, "closesAt"),
        ({"total": 3, "opens_at": 5, "closes_at": 4}, "closesAt"),
    ],
)
def test_an_offer_that_makes_no_sense_is_refused(arguments: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Offer(sku_id=1, **arguments)

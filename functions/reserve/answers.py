"""The domain's answers as HTTP answers; errors are problem details (RFC 9457)."""

import json
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.reservation import Status
from seckill.domain.sale import SaleView, iso_time
from seckill.protocol.show import Shown

STATUS_OF = {
    Refusal.SOLD_OUT: HTTPStatus.CONFLICT,
    Refusal.NOT_OPEN: HTTPStatus.CONFLICT,
    Refusal.CLOSED: HTTPStatus.GONE,
    Refusal.NO_SUCH_SALE: HTTPStatus.NOT_FOUND,
    Refusal.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Refusal.OUTCOME_UNKNOWN: HTTPStatus.SERVICE_UNAVAILABLE,
}
TITLE_OF = {
    Refusal.SOLD_OUT: "Sold out",
    Refusal.NOT_OPEN: "The sale has not opened yet",
    Refusal.CLOSED: "The sale is over",
    Refusal.NO_SUCH_SALE: "There is no such sale",
    Refusal.UNAVAILABLE: "Not possible right now, ask again",
    Refusal.OUTCOME_UNKNOWN: "It is not known whether you hold a reservation, ask again to learn",
}
# A rebuild or a fail-over of a connection is over in about this time.
RETRY_AFTER_SECONDS = "2"


def reservation_answer(sku_id: int, answer: Answer) -> Response[str]:
    """202 for a new reservation, 200 for one this user already holds, else the refusal's status."""
    if isinstance(answer, Reserved):
        body = {
            "preDeductKey": answer.key,
            "skuId": sku_id,
            "status": answer.status.name,
            "quantity": answer.quantity,
        }
        location = {"Location": f"/api/seckill/reservations/{answer.key}"}
        return _json(HTTPStatus.ACCEPTED if answer.new else HTTPStatus.OK, body, location)
    return refused(answer)


def refused(answer: Refused) -> Response[str]:
    """The problem document of a refusal, with Retry-After when asking again may help."""
    status = STATUS_OF[answer.refusal]
    more = {"preDeductKey": answer.key, "opensAt": iso_time(answer.opens_at)}
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return problem(status, answer.refusal.value, TITLE_OF[answer.refusal], headers, more)


def problem(
    status: HTTPStatus,
    code: str,
    title: str,
    headers: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> Response[str]:
    """application/problem+json; members of `more` that are None are left out."""
    body = {"type": "about:blank", "title": title, "status": status.value, "code": code}
    body |= {name: value for name, value in (more or {}).items() if value is not None}
    return Response(status.value, "application/problem+json", json.dumps(body), headers=dict(headers or {}))


def sale_answer(sku_id: int, sale: SaleView) -> Response[str]:
    """The sale's public status; `available` in units."""
    body = {
        "skuId": sku_id,
        "state": sale.phase,
        "available": sale.stock if sale.phase in ("SCHEDULED", "OPEN") else 0,
        "opensAt": iso_time(sale.opens_at),
        "closesAt": iso_time(sale.closes_at),
    }
    return _json(HTTPStatus.OK, body, {"Cache-Control": "public, max-age=1"})


def shown_reservation(shown: Shown | None) -> Response[str]:
    """A reservation as its user sees it; 404 when it is not his."""
    if shown is None:
        return problem(HTTPStatus.NOT_FOUND, "NO_SUCH_RESERVATION", "You have no such reservation")
    row = shown.reservation
    body: dict[str, Any] = {
        "preDeductKey": row.key,
        "skuId": row.sku_id,
        "status": row.status.name,
        "quantity": row.quantity,
    }
    if shown.order_id is not None:
        body["orderId"] = shown.order_id
    if row.status is Status.ROLLED_BACK and row.reason:
        body["reason"] = row.reason
    return _json(HTTPStatus.OK, body, {"Cache-Control": "no-store"})


def _json(status: HTTPStatus, body: dict[str, Any], headers: dict[str, str]) -> Response[str]:
    return Response(status.value, "application/json", json.dumps(body), headers=dict(headers))

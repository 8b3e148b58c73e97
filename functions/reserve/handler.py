"""All HTTP routes: make a reservation, look at one, look at the sale."""

from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from functions.reserve.answers import problem, refused, reservation_answer, sale_answer, shown_reservation
from functions.reserve.container import Container, make_container
from functions.reserve.requests import (
    InvalidRequest,
    Unauthorized,
    correlation_id_of,
    refuse_body,
    sku_id_of,
    user_of,
)
from functions.reserve.settings import Settings
from seckill.adapters.environment import from_environment
from seckill.adapters.metrics import Metrics
from seckill.adapters.mysql import DatabaseError
from seckill.adapters.redis import RedisError
from seckill.domain.answer import Refusal, Refused
from seckill.protocol.show import latest_of_user, of_user_by_key

logger = Logger(service="reserve")
metrics = Metrics("reserve")
app = APIGatewayHttpResolver()


@cache
def container() -> Container:
    """Made at the first request, kept for the container's life."""
    return make_container(from_environment(Settings), metrics.count)


@app.post("/api/seckill/<sku_text>")
def reserve(sku_text: str) -> Response[str]:
    """Reserve for the token's user."""
    event = app.current_event.raw_event
    user, sku_id = user_of(event), sku_id_of(sku_text)
    refuse_body(event)
    logger.append_keys(sku_id=sku_id)
    answer = container().reserve(sku_id, user, correlation_id_of(event))
    log = logger.info if answer.key else logger.debug  # a storm's sold-out answers are only counted
    log("reserve answered", extra={"pre_deduct_key": answer.key, "answer": answer.name})
    if answer.metric:
        metrics.count(answer.metric)
    return reservation_answer(sku_id, answer)


@app.get("/api/seckill/reservations")
def latest_reservation() -> Response[str]:
    """This user's live, else latest, reservation of a sale."""
    user = user_of(app.current_event.raw_event)
    sku_id = sku_id_of((app.current_event.query_string_parameters or {}).get("skuId"))
    container().new_read()
    return shown_reservation(latest_of_user(container().database, sku_id, user))


@app.get("/api/seckill/reservations/<key>")
def reservation(key: str) -> Response[str]:
    """One of this user's reservations."""
    user = user_of(app.current_event.raw_event)
    container().new_read()
    return shown_reservation(of_user_by_key(container().database, key, user))


@app.get("/api/seckill/<sku_text>")
def sale(sku_text: str) -> Response[str]:
    """The sale's public status."""
    sku_id = sku_id_of(sku_text)
    container().new_read()
    view = container().redis.view(sku_id)
    if view is None:
        gone = container().redis.not_on_offer(sku_id)
        return refused(Refused(Refusal.NO_SUCH_SALE if gone else Refusal.UNAVAILABLE))
    return sale_answer(sku_id, view)


@app.exception_handler(InvalidRequest)  # type: ignore[untyped-decorator]
def invalid(error: InvalidRequest) -> Response[str]:
    """400."""
    return problem(HTTPStatus.BAD_REQUEST, "INVALID_REQUEST", str(error))


@app.exception_handler(Unauthorized)  # type: ignore[untyped-decorator]
def unauthorized(error: Unauthorized) -> Response[str]:
    """401."""
    return problem(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED", str(error))


@app.exception_handler([DatabaseError, RedisError])  # type: ignore[untyped-decorator]
def store_away(error: Exception) -> Response[str]:
    """503: a route that only reads could not; reserve itself answers for its stores."""
    logger.warning("store away", extra={"error": str(error)})
    return refused(Refused(Refusal.UNAVAILABLE))


def refuse_a_line_end(
    app: APIGatewayHttpResolver, go_on: Callable[[APIGatewayHttpResolver], Response[str]]
) -> Response[str]:
    """Powertools' patterns end in `$`, which also matches in front of a last line end: no path of ours has one."""
    if app.current_event.path.endswith("\n"):
        raise NotFoundError
    return go_on(app)


app.use(middlewares=[refuse_a_line_end])


@app.not_found
def not_found(_: Exception) -> Response[str]:
    """404, or 400 when the gateway knew the route but its parameter is like no SKU and no key."""
    if "{" in app.current_event.raw_event.get("routeKey", ""):
        return problem(HTTPStatus.BAD_REQUEST, "INVALID_REQUEST", "the path parameter is not a SKU or a key")
    return problem(HTTPStatus.NOT_FOUND, "NOT_FOUND", "There is nothing here")


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP API event (payload 2.0), one answer within 3 s."""
    correlation_id = correlation_id_of(event)
    logger.clear_state()
    logger.append_keys(correlation_id=correlation_id)
    with metrics.invocation():
        answer = app.resolve(event, context)
    answer.setdefault("headers", {})["X-Correlation-Id"] = correlation_id
    return answer

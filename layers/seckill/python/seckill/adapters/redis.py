"""Redis, the fast and forgetful copy of each sale: one method per Lua script (docs/protocol.md 3).

No client-side retries anywhere: a script whose reply was lost may have run; only the protocol knows what to do then.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from seckill.adapters.environment import from_environment
from seckill.adapters.iam_tokens import Role, Token, redis_token
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction, Hold
from seckill.domain.sale import LARGEST_EPOCH_LEAD, LARGEST_EXACT_INTEGER, SaleView

CATALOGUE = "seckill:catalogue"
# A member no SKU can have, so that an empty catalogue still exists.
CATALOGUE_SENTINEL = "#"
# Fields sent per staging command: some 100 KB, far below what blocks Redis noticeably.
STAGE_FIELDS = 1_000
# Long enough for a load of a large sale, short enough that an abandoned one does not stay.
STAGE_TTL_SECONDS = 600
# Fields asked for per scan step: a few hundred holds an answer.
SCAN_FIELDS = 500
# An epoch is at most 2^53, 16 digits; a longer text is garbage, and int() refuses the longest.
EPOCH_DIGITS = 16
# Above this many holds a snapshot sends counts only: the verdict is "busy" (docs/protocol.md 3).
SNAPSHOT_HOLDS = 5_000


class RedisError(Exception):
    """Redis did not do what was asked; nothing of it happened."""


class RedisOutcomeUnknown(RedisError):
    """The command was sent and its answer never came: it may have run or may still run."""


class NothingDeducted(StrEnum):
    """Answers of reserve.lua that need no more words. MISSING: no sale hash; UNAVAILABLE: the copy is not whole."""

    SOLD_OUT = "SOLD_OUT"
    CLOSED = "CLOSED"
    MISSING = "MISSING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class NotOpen:
    """The sale has not opened yet; `opens_at` in milliseconds since 1970."""

    opens_at: int


@dataclass(frozen=True, slots=True)
class Won:
    """Units deducted under a fresh key."""

    deduction: Deduction


@dataclass(frozen=True, slots=True)
class Replay:
    """This user has deducted already, and Redis still holds it."""

    deduction: Deduction


@dataclass(frozen=True, slots=True)
class HoldLost:
    """This user has deducted already under `key`; its hold is gone: landed and settled, or lost."""

    key: str
    copy_epoch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sale, how many holds it has, and the holds themselves (None when they are too many to send)."""

    sale: SaleView
    hold_count: int
    holds: tuple[Hold, ...] | None
    unreadable_holds: int = 0


@cache
def _script(name: str) -> tuple[str, str]:
    """A script's text and the digest under which a server knows it."""
    folder = files("seckill") / "lua"
    text = (folder / f"{name}.lua").read_text()
    if name in ("reserve", "release", "snapshot", "load"):
        text = (folder / "copy.lua").read_text() + text
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Redis:
    """The copies of all sales in one Redis or one Redis Cluster.

    `url` is redis:// or rediss://, with `?cluster=true` for a cluster. Every method raises RedisError, or its subclass
    RedisOutcomeUnknown when the command may have run all the same. Each wait is bounded by `deadline`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self.deadline = Deadline(seconds=1.0)

    # -- the verbs ------------------------------------------------------------------------------------------------

    def reserve(self, sku_id: int, key: str, user: str) -> Won | Replay | HoldLost | NotOpen | NothingDeducted:
        """Deduct one reservation's units for `user` under the fresh `key`; at most one live key per user."""
        answer = _texts(self._run("reserve", _copy_keys(sku_id), [key, user]))
        match answer:
            case ["WON", owned, epoch, ticket, quantity]:
                return Won(Deduction(owned, sku_id, user, int(epoch), int(ticket), int(quantity)))
            case ["REPLAY", owned, epoch, ticket, quantity]:
                return Replay(Deduction(owned, sku_id, user, int(epoch), int(ticket), int(quantity)))
            case ["REPLAY", owned, copy_epoch]:
                return HoldLost(owned, int(copy_epoch))
            case ["NOT_OPEN", opens_at]:
                return NotOpen(int(opens_at))
            case ["SOLD_OUT" | "CLOSED" | "MISSING" | "UNAVAILABLE" as nothing]:
                return NothingDeducted(nothing)
        raise RedisError(f"reserve.lua answered {answer!r}")

    def release(self, sku_id: int, key: str, user: str) -> bool:
        """Give back the units of a key read at status 3, once; True when units were given back."""
        return bool(self._run("release", _copy_keys(sku_id), [key, user]))

    def settle(self, sku_id: int, keys: Sequence[str]) -> int:
        """Forget the holds of keys read at status 2; how many there were."""
        return int(self._run("settle", [_copy_keys(sku_id)[1]], list(keys)))

    def load(
        self,
        sku_id: int,
        sale: Mapping[str, str],
        epoch: int,
        holds: Iterable[Hold],
        buyers: Mapping[str, str],
    ) -> bool:
        """Replace the copy unless it is of this epoch or a newer one; all or nothing. True when it was replaced.

        `sale` has state, stock, quantity, opens_at and closes_at ('' for none); `buyers` maps users to live keys.
        """
        held_fields = {"#epoch": str(epoch)} | {hold.key: _hold_json(hold) for hold in holds}
        buyer_fields = {"#epoch": str(epoch)} | {f"u:{user}": key for user, key in buyers.items()}
        stage = f"seckill:{{{sku_id}}}:stage:{epoch}:{secrets.token_hex(8)}"
        stage_keys = [f"{stage}:held", f"{stage}:buyers"]
        self._stage(stage_keys[0], held_fields)
        self._stage(stage_keys[1], buyer_fields)
        arguments = [
            str(epoch),
            sale["state"],
            sale["stock"],
            sale["quantity"],
            sale["opens_at"],
            sale["closes_at"],
        ]
        expected = [len(held_fields), len(buyer_fields), LARGEST_EPOCH_LEAD]
        answer = self._run("load", _copy_keys(sku_id) + stage_keys, [*arguments, *expected])
        if answer == b"INCOMPLETE":
            raise RedisError(f"the staged copy of SKU {sku_id} was not as expected, nothing was loaded")
        return bool(answer == b"LOADED")

    def snapshot(self, sku_id: int, most_holds: int = SNAPSHOT_HOLDS) -> Snapshot | None:
        """The sale and its holds at one moment; None when there is no whole copy."""
        answer = self._run("snapshot", _copy_keys(sku_id), [most_holds])
        if answer[0] != b"COPY":
            return None
        _, state, epoch, stock, ticket, quantity, opens_at, closes_at, now = _texts(answer[:9])
        hold_count, entries = int(answer[9]), answer[10:]
        sale = SaleView(
            state=state, epoch=int(epoch), stock=int(stock), ticket=int(ticket), quantity=int(quantity),
            opens_at=_time(opens_at), closes_at=_time(closes_at), now=int(now),
        )  # fmt: skip
        if hold_count > most_holds:
            return Snapshot(sale, hold_count, None)
        holds = [_parse_hold(key, text) for key, text in zip(entries[::2], entries[1::2], strict=True)]
        readable = tuple(hold for hold in holds if hold is not None)
        return Snapshot(sale, hold_count, readable, len(holds) - len(readable))

    def holds(self, sku_id: int) -> Iterator[Hold | None]:
        """All holds of a sale, in pages; None for one that cannot be read. What comes meanwhile may be missed."""
        cursor, key = 0, _copy_keys(sku_id)[1]
        while True:  # HSCAN ends: it visits each bucket of the hash once
            cursor, fields = self._command("HSCAN", key, cursor, "COUNT", SCAN_FIELDS)
            for name, text in fields.items():
                if name != b"#epoch":
                    yield _parse_hold(name, text)
            if cursor == 0:
                return

    def view(self, sku_id: int) -> SaleView | None:
        """The sale without its holds; None when there is no whole copy."""
        snapshot = self.snapshot(sku_id, most_holds=0)
        return snapshot.sale if snapshot else None

    def epoch(self, sku_id: int) -> int | None:
        """The epoch written in the sale hash, whole copy or not; None when there is none that is a number."""
        try:
            text = self._command("HGET", _copy_keys(sku_id)[0], "epoch")
        except RedisError as error:
            if "WRONGTYPE" in str(error):  # a key of another type: no epoch to be had
                return None
            raise
        return int(text) if text is not None and text.isdigit() and len(text) <= EPOCH_DIGITS else None

    def remove(self, sku_id: int) -> None:
        """Forget an archived sale's copy."""
        self._command("DEL", *_copy_keys(sku_id))
        self._command("SREM", CATALOGUE, str(sku_id))

    # -- the catalogue ----------------------------------------------------------------------------------------------

    def not_on_offer(self, sku_id: int) -> bool:
        """Whether the catalogue is there and says that there is no such sale."""
        catalogued = self._command("SMISMEMBER", CATALOGUE, CATALOGUE_SENTINEL, str(sku_id))
        return [bool(member) for member in catalogued] == [True, False]

    def add_to_catalogue(self, sku_ids: Iterable[int]) -> None:
        """Add SKUs on offer: give all of them, or a lost catalogue would come back with some missing."""
        self._command("SADD", CATALOGUE, CATALOGUE_SENTINEL, *map(str, sku_ids))

    def rewrite_catalogue(self, sku_ids: Iterable[int]) -> None:
        """Make the catalogue exactly these SKUs, in one step."""
        self._run("catalogue", [CATALOGUE], [CATALOGUE_SENTINEL, *map(str, sku_ids)])

    # -- the client -------------------------------------------------------------------------------------------------

    def _stage(self, key: str, fields: Mapping[str, str]) -> None:
        items = list(fields.items())
        for start in range(0, len(items), STAGE_FIELDS):
            chunk = [text for item in items[start : start + STAGE_FIELDS] for text in item]
            self._run("stage", [key], [STAGE_TTL_SECONDS, *chunk])

    def _run(self, name: str, keys: list[str], arguments: Sequence[str | int]) -> Any:
        """Run a script by its digest; a server that does not know it is sent the text (NOSCRIPT: nothing ran)."""
        text, digest = _script(name)

        def run(client: Any) -> Any:
            try:
                return client.evalsha(digest, len(keys), *keys, *arguments)
            except redis.exceptions.NoScriptError:
                return client.eval(text, len(keys), *keys, *arguments)

        return self._asked(name, run)

    def _command(self, *words: str | int) -> Any:
        return self._asked(str(words[0]), lambda client: client.execute_command(*words))

    def _asked(self, what: str, ask: Callable[[Any], Any]) -> Any:
        """Do something with the client; its exceptions become the module's two, by whether it may have happened."""
        try:
            if self._client is None:
                self._client = _client(self._url, self)
            return ask(self._client)
        except _NotConnected as error:
            raise RedisError(f"{what}: {error}") from error
        except redis.ResponseError as error:
            # Redis 6.2 reports what happened inside a script only in the text.
            if isinstance(error, redis.exceptions.ReadOnlyError) or "READONLY" in str(error):
                self.close()  # no longer the primary: the next call looks its name up again
            raise RedisError(f"{what}: {error}") from error
        except (redis.ConnectionError, redis.TimeoutError, RedisClusterException, OSError) as error:
            raise RedisOutcomeUnknown(f"{what}: {type(error).__name__}: {error}") from error
        except redis.RedisError as error:
            raise RedisError(f"{what}: {error}") from error

    def close(self) -> None:
        """Drop the connections; the next call makes new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None


class _NotConnected(redis.ConnectionError):
    """No connection, so nothing was sent."""


def _bounded(base: type[Any], owner: Redis) -> type[Any]:
    """A connection class whose every wait is what the owner's deadline allows at that moment."""

    class BoundedConnection(base):  # type: ignore[misc]
        # The library asks anew for each address that it tries and for each new socket.
        @property
        def socket_connect_timeout(self) -> float:
            return owner.deadline.wait()

        @property
        def socket_timeout(self) -> float:
            return owner.deadline.wait()

        def connect(self) -> None:
            try:
                self._connect_signed()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                raise _NotConnected(str(error)) from error

        def on_connect_check_health(self, check_health: bool = True) -> None:
            super().on_connect_check_health(check_health)
            if issubclass(base, redis.SSLConnection):
                # TLS 1.3 sends session tickets after the handshake. Some answer must be read, and they with it: the
                # library takes a connection with unread bytes for one that is out of step, and refuses it.
                self.send_command("PING", check_health=False)
                self.read_response()

        def _connect_signed(self) -> None:
            try:
                super().connect()
            except redis.AuthenticationError:
                # A clock or a key may have moved: once more with a password signed afresh, nothing was sent yet.
                if not isinstance(self.credential_provider, _SignedByRole):
                    raise
                self.credential_provider.token.refused()
                super().connect()

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            self.update_current_socket_timeout(self.socket_timeout)
            super().send_packed_command(command, check_health=check_health)

    return BoundedConnection


class _SignedByRole(redis.CredentialProvider):
    """The user, and a password signed with the function's role for one replication group."""

    def __init__(self, user: str, replication_group: str) -> None:
        self._user = user
        self.token = Token(lambda: redis_token(from_environment(Role), replication_group=replication_group, user=user))

    def get_credentials(self) -> tuple[str, str]:
        """For the handshake of a new connection."""
        return self._user, self.token.text()


def _credentials(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    user = unquote(parts.username) if parts.username else None
    options = parse_qs(parts.query)
    if user and options.get("auth") == ["iam"]:
        return {"credential_provider": _SignedByRole(user, options["cache"][0])}
    return {"username": user, "password": unquote(parts.password) if parts.password else None}


def _client(url: str, owner: Redis) -> Any:
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    settings: dict[str, Any] = {
        **_credentials(url),
        "connection_class": _bounded(redis.SSLConnection if parts.scheme == "rediss" else redis.Connection, owner),
        "protocol": 2,
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
    }
    host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    if options.get("cluster") == ["true"]:
        # Only a cluster client made from a URL takes a connection class; the class brings TLS, not the scheme.
        return RedisCluster(url=f"redis://{host}:{port}", **settings)
    pool = redis.ConnectionPool(host=host, port=port, db=int(parts.path.strip("/") or 0), **settings)
    return redis.Redis.from_pool(pool)


# -- forms ----------------------------------------------------------------------------------------------------------


def _copy_keys(sku_id: int) -> list[str]:
    """The three keys of a sale's copy, in one cluster slot by the hash tag."""
    return [f"seckill:{{{sku_id}}}:{part}" for part in ("sale", "held", "buyers")]


def _texts(answer: Sequence[bytes]) -> list[str]:
    """An answer's parts; what is not UTF-8 is nothing of ours and only has to stay unlike it."""
    return [part.decode(errors="replace") for part in answer]


def _time(text: str) -> int | None:
    return int(text) if text else None


def _hold_json(hold: Hold) -> str:
    fields = {
        "user": hold.user,
        "quantity": hold.quantity,
        "epoch": hold.epoch,
        "ticket": hold.ticket,
        "ms": hold.ms,
    }
    return json.dumps(fields, separators=(",", ":"))


def _parse_hold(key: bytes, text: bytes) -> Hold | None:
    """The hold; None when it is not one that reserve.lua or load could have written."""
    try:
        fields = json.loads(text)
        user, *numbers = (fields[name] for name in ("user", "quantity", "epoch", "ticket", "ms"))
        name = key.decode()
        user.encode()  # JSON can spell half a character, which no statement can carry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(user, str) or not all(type(n) is int and 0 <= n <= LARGEST_EXACT_INTEGER for n in numbers):
        return None
    return Hold(name, user, *numbers)

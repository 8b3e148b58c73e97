"""What may differ between deployments: typed, frozen, checked. A wrong value is refused at synth with a sentence."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

# A family with its generation, and a size: "t4g.medium".
_CLASS = re.compile(r"[a-z]+[0-9][a-z0-9-]*\.[a-z0-9]+")
_HTTPS_URL = re.compile(r"https://[^\s/]+(/\S*)?")
_ORIGIN = re.compile(r"https?://[^\s/]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
# Keys of the CDK's own have a colon, a slash, an @ or a hyphen; whatever looks like these is meant for us.
_OURS = re.compile(r"[A-Za-z0-9_.]+")


class ConfigurationError(ValueError):
    """A configuration that cannot be deployed; the message is the sentence to show."""


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ConfigurationError(sentence)


@dataclass(frozen=True, kw_only=True)
class Database:
    """The MySQL-family server behind the proxy."""

    # Chosen at the first deployment: another engine is another server, and CloudFormation refuses to take the exports
    # of this one from the service stack that uses them.
    engine: Literal["mysql", "aurora", "mariadb"]
    instance_class: str  # RDS for MySQL and MariaDB, without "db."; Aurora is Serverless v2
    storage_gib: int  # first size; it grows by itself up to five times this
    multi_az: bool
    backup_days: int
    insights: Literal["standard", "advanced"]  # CloudWatch Database Insights
    max_connections: int  # the server's max_connections
    proxy_percent: int  # share of max_connections the proxy may open; the rest is for migrate, operators and RDS itself
    min_capacity_acu: float  # Aurora only
    max_capacity_acu: float  # Aurora only

    def __post_init__(self) -> None:
        _require(20 <= self.storage_gib <= 65536, "database.storage_gib must be between 20 and 65536.")
        _require(
            1 <= self.backup_days <= 35,
            "database.backup_days must be between 1 and 35, the longest RDS keeps.",
        )
        _require(10 <= self.max_connections <= 16000, "database.max_connections must be between 10 and 16000.")
        _require(1 <= self.proxy_percent <= 95, "database.proxy_percent must leave at least 5 % for operators.")
        _require(
            0.5 <= self.min_capacity_acu <= self.max_capacity_acu <= 256,
            "database.min_capacity_acu and max_capacity_acu must be between 0.5 and 256, the first not the larger.",
        )
        _require(bool(_CLASS.fullmatch(self.instance_class)), "database.instance_class must look like 't4g.medium'.")
        family, _, size = self.instance_class.partition(".")
        _require(
            not (family in {"t3", "t4g"} and size in {"micro", "small"}),
            f"database.instance_class {self.instance_class} has no Performance Insights, which Database "
            f"Insights needs.",
        )

    @property
    def proxy_connections(self) -> int:
        """Connections the proxy may hold to the server at once."""
        return self.max_connections * self.proxy_percent // 100


@dataclass(frozen=True, kw_only=True)
class Redis:
    """The ElastiCache replication group."""

    engine: Literal["valkey", "redis"]
    node_type: str  # without "cache."
    cluster_mode: bool  # chosen at the first deployment, like database.engine
    shards: int  # more than one only in cluster mode
    snapshot_days: int

    def __post_init__(self) -> None:
        _require(bool(_CLASS.fullmatch(self.node_type)), "redis.node_type must look like 't4g.small'.")
        _require(1 <= self.shards <= 90, "redis.shards must be between 1 and 90.")
        _require(
            self.cluster_mode or self.shards == 1,
            "redis.shards above 1 needs redis.cluster_mode: without it there is one shard.",
        )
        _require(1 <= self.snapshot_days <= 35, "redis.snapshot_days must be between 1 and 35.")


@dataclass(frozen=True, kw_only=True)
class Functions:
    """The Lambda functions: size, number, and so how many database connections they can hold."""

    architecture: Literal["arm64", "x86_64"]
    reserve_memory_mib: int
    reserve_concurrency: int  # containers of reserve at once
    reserve_provisioned: int  # of those, always warm
    land_order_concurrency: int  # landings queue at the hot stock row, so more containers only wait longer
    limit_concurrency: bool  # reserve concurrency for each function; a new account (10 in all) cannot
    account_concurrency: int  # the account's limit, which bounds the connections where limit_concurrency is off

    # Two event sources, which have at least 2 pollers each, and the schedule.
    reconcile_concurrency: ClassVar[int] = 5
    # A person and a deployment.
    sale_admin_concurrency: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _require(
            128 <= self.reserve_memory_mib <= 10240,
            "functions.reserve_memory_mib must be between 128 and 10240.",
        )
        _require(self.reserve_concurrency >= 1, "functions.reserve_concurrency must be at least 1.")
        _require(
            2 <= self.land_order_concurrency <= 1000,
            "functions.land_order_concurrency must be between 2 and 1000, what an SQS event source allows.",
        )
        _require(
            0 <= self.reserve_provisioned <= self.reserve_concurrency,
            "functions.reserve_provisioned must be between 0 and functions.reserve_concurrency.",
        )
        _require(self.account_concurrency >= 10, "functions.account_concurrency must be at least 10.")
        # Lambda keeps 100 unreserved for the account's other functions and refuses the deployment otherwise.
        _require(
            not self.limit_concurrency or self.reserved_total <= self.account_concurrency - 100,
            f"functions.*_concurrency reserve {self.reserved_total}, but Lambda lets an account with "
            f"{self.account_concurrency} reserve at most {self.account_concurrency - 100}.",
        )

    @property
    def reserved_total(self) -> int:
        return (
            self.reserve_concurrency
            + self.land_order_concurrency
            + self.reconcile_concurrency
            + self.sale_admin_concurrency
        )

    @property
    def database_connections(self) -> int:
        """The most connections all functions can hold at once.

        A container holds one; reconcile and sale_admin two, since a rebuild reads on a connection of its own
        (docs/protocol.md 6.4 c) beside the one that holds the sale.
        """
        if not self.limit_concurrency:
            return self.account_concurrency * 2
        return (
            self.reserve_concurrency
            + self.land_order_concurrency
            + 2 * (self.reconcile_concurrency + self.sale_admin_concurrency)
        )


@dataclass(frozen=True, kw_only=True)
class Api:
    """The HTTP API. Without an issuer a Cognito user pool is made."""

    issuer: str  # empty: our own user pool
    audience: tuple[str, ...]
    public_status: bool  # GET /api/seckill/{skuId} without a token
    cors_origins: tuple[str, ...]
    requests_per_second: int
    burst: int

    def __post_init__(self) -> None:
        _require(
            not self.issuer or bool(_HTTPS_URL.fullmatch(self.issuer)),
            "api.issuer must be an https URL: API Gateway reads its keys from there.",
        )
        _require(
            bool(self.issuer) == bool(self.audience),
            "api.issuer and api.audience belong together: set both, or neither for a user pool of our own.",
        )
        # 10,000 requests/s and a bucket of 5,000 are the account's quotas in most regions: more cannot be had here.
        _require(1 <= self.requests_per_second <= 10000, "api.requests_per_second must be between 1 and 10000.")
        _require(1 <= self.burst <= 5000, "api.burst must be between 1 and 5000.")
        _require("*" not in self.cors_origins, "api.cors_origins must name origins: '*' would admit every page.")
        _require(
            all(_ORIGIN.fullmatch(origin) for origin in self.cors_origins),
            "api.cors_origins must look like 'https://shop.example', with commas between them.",
        )


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One deployment: `cdk deploy -c env=NAME`, single values by `-c section.field=value`."""

    name: Literal["dev", "prod"]
    keep_data: bool  # prod: databases, snapshots, logs and users survive the stack
    log_days: int
    alarm_email: str  # empty: nobody is subscribed to the alarm topic
    database: Database
    redis: Redis
    functions: Functions
    api: Api

    def __post_init__(self) -> None:
        _require(self.log_days in LOG_DAYS, f"log_days must be one of {', '.join(map(str, LOG_DAYS))}.")
        _require(
            not self.alarm_email or bool(_EMAIL.fullmatch(self.alarm_email)), "alarm_email must be an e-mail address."
        )
        wanted, had = self.functions.database_connections, self.database.proxy_connections
        _require(
            wanted <= had,
            f"The functions can hold {wanted} database connections, but the proxy may open only {had}: "
            "lower functions.*_concurrency or raise database.max_connections.",
        )


# What CloudWatch Logs accepts, up to a year.
LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365)

DEV = Environment(
    name="dev",
    keep_data=False,
    log_days=7,
    alarm_email="",
    database=Database(
        engine="mysql",
        instance_class="t4g.medium",  # the smallest with Performance Insights
        storage_gib=20,
        multi_az=False,
        backup_days=1,
        insights="standard",
        max_connections=100,
        proxy_percent=80,
        min_capacity_acu=0.5,
        max_capacity_acu=2,
    ),
    redis=Redis(engine="valkey", node_type="t4g.micro", cluster_mode=False, shards=1, snapshot_days=1),
    functions=Functions(
        architecture="arm64",
        reserve_memory_mib=512,
        reserve_concurrency=5,
        reserve_provisioned=0,
        land_order_concurrency=2,
        limit_concurrency=False,
        account_concurrency=10,  # what a new account has
    ),
    api=Api(issuer="", audience=(), public_status=True, cors_origins=(), requests_per_second=100, burst=200),
)

PROD = Environment(
    name="prod",
    keep_data=True,
    log_days=90,
    alarm_email="",
    database=Database(
        engine="mysql",
        instance_class="r7g.large",
        storage_gib=100,
        multi_az=True,
        backup_days=14,
        insights="advanced",
        max_connections=640,
        proxy_percent=90,
        min_capacity_acu=2,
        max_capacity_acu=16,
    ),
    redis=Redis(engine="valkey", node_type="r7g.large", cluster_mode=False, shards=1, snapshot_days=7),
    functions=Functions(
        architecture="arm64",
        reserve_memory_mib=1769,  # one whole vCPU
        reserve_concurrency=500,  # 10,000 requests/s (the API's quota) at 50 ms each
        reserve_provisioned=0,  # 20 would cost $300 a month (docs/cost.md): for the hours of a sale
        land_order_concurrency=10,
        limit_concurrency=True,
        account_concurrency=1000,
    ),
    api=Api(issuer="", audience=(), public_status=True, cors_origins=(), requests_per_second=10000, burst=5000),
)

ENVIRONMENTS = {"dev": DEV, "prod": PROD}
_SECTIONS = ("database", "redis", "functions", "api")


def environment_from_context(context: Mapping[str, object]) -> Environment:
    """The environment that `-c env=...` names, with every `-c section.field=value` put in.

    Raises ConfigurationError, in a sentence, for an unknown environment, field or value.
    """
    name = str(context.get("env", "dev"))
    if name not in ENVIRONMENTS:
        raise ConfigurationError(f"env={name} is not known: say {' or '.join(ENVIRONMENTS)}.")
    changes: dict[str, dict[str, object]] = {section: {} for section in ("", *_SECTIONS)}
    for key, value in context.items():
        section, dot, name_in_section = key.rpartition(".")
        if key in {"log_days", "alarm_email", "keep_data"}:
            changes[""][key] = _typed(Environment, key, value)
        elif dot and section in _SECTIONS:
            kind = typing.get_type_hints(Environment)[section]
            changes[section][name_in_section] = _typed(kind, name_in_section, value)
        else:
            _require(key == "env" or not _OURS.fullmatch(key), f"{key} is not a setting.")
    base = ENVIRONMENTS[name]
    sections = {section: dataclasses.replace(getattr(base, section), **changes[section]) for section in _SECTIONS}
    return dataclasses.replace(base, **sections, **changes[""])  # type: ignore[arg-type]


def _typed(owner: type, name: str, value: object) -> object:
    """`value` as the field's type: the command line gives strings only."""
    where = name if owner is Environment else f"{owner.__name__.lower()}.{name}"
    if name not in {f.name for f in dataclasses.fields(owner) if f.init}:
        raise ConfigurationError(f"{where} is not a setting.")
    kind = typing.get_type_hints(owner)[name]
    text = str(value)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        _require(text in choices, f"{where}={text} is not known: say {' or '.join(choices)}.")
        return text
    if kind is bool:
        _require(text.lower() in {"true", "false"}, f"{where}={text} must be true or false.")
        return text.lower() == "true"
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{where}={text} must be a number.") from None

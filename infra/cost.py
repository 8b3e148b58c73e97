"""docs/cost.md: what each environment costs a month at rest, and by a million requests.

`python -m infra.cost` prints the page from the configuration and infra/prices.toml; a test holds the two together.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.config import DEV, PROD, Environment

PRICES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "prices.toml").read_text())
HOURS = 730  # in a month
ZONES, ENDPOINTS, NODES = 2, 2, 2
VCPUS = 2  # of both instance classes; the proxy and Database Insights are paid by them
ALARM_METRICS = 26  # 17 alarms, and each metric of an alarm's expression is paid for
CUSTOM_METRICS = 45  # the counts by service, the gauges, and the gauges of two sales
# Three event sources, five pollers each at rest, one long poll in 20 s.
IDLE_RECEIVES = 3 * 5 * HOURS * 3600 // 20
PASSES = HOURS * 60 * 2 + HOURS * 2  # reconcile: a beat every half minute, an audit every half hour
PASS_SECONDS, PASS_GB = 0.3, 0.5
# A million requests, nearly all of them sold out: assumed, not measured on Lambda, which bills by the millisecond.
REQUEST_SECONDS = {"dev": 0.03, "prod": 0.015}
LOG_GB = 1.2  # an access-log line, two platform lines and one of ours by request
TRACED = 0.05  # X-Ray's default sampling: 5 %, and one request a second


@dataclass(frozen=True)
class Line:
    """One line of the bill, in dollars."""

    what: str
    how_many: str
    dollars: float


def at_rest(environment: Environment) -> Iterator[Line]:
    """A month without a request."""
    database, functions = environment.database, environment.functions
    zones = 2 if database.multi_az else 1
    hour, month = PRICES["hour"], PRICES["month"]
    instance = hour[f"rds {database.engine} {database.instance_class}"]
    yield Line("Database server", f"{zones} x {database.instance_class}", zones * HOURS * instance)
    storage = zones * database.storage_gib * month["rds gp3 gb"]
    yield Line("Database storage", f"{zones} x {database.storage_gib} GB", storage)
    yield Line("RDS Proxy", f"{VCPUS} vCPU", VCPUS * HOURS * hour["rds proxy vcpu"])
    if database.insights == "advanced":
        insights = VCPUS * HOURS * hour["database insights advanced vcpu"]
        yield Line("Database Insights, advanced", f"{VCPUS} vCPU", insights)
    node = hour[f"elasticache {environment.redis.engine} {environment.redis.node_type}"]
    yield Line("Redis", f"{NODES} x {environment.redis.node_type}", NODES * HOURS * node)
    endpoints = ENDPOINTS * ZONES * HOURS * hour["interface endpoint zone"]
    yield Line("Interface endpoints", f"{ENDPOINTS} x {ZONES} zones", endpoints)
    if functions.reserve_provisioned:
        yield provisioned(environment, functions.reserve_provisioned)
    yield Line("reconcile", f"{PASSES:,} passes", _lambda(PASSES, PASS_SECONDS, PASS_GB))
    yield Line("SQS, empty receives", f"{IDLE_RECEIVES:,}", IDLE_RECEIVES / 1e6 * PRICES["million"]["sqs request"])
    watching = ALARM_METRICS * month["alarm metric"] + month["dashboard"] + CUSTOM_METRICS * month["custom metric"]
    yield Line("Alarms, dashboard, metrics", f"{ALARM_METRICS}, 1, {CUSTOM_METRICS}", watching)
    yield Line("Key and master secret", "1, 1", month["kms key"] + month["secret"])


def provisioned(environment: Environment, containers: int) -> Line:
    """A month of containers of reserve that are always warm."""
    gigabytes = environment.functions.reserve_memory_mib / 1024
    price = PRICES["unit"]["lambda arm64 provisioned gb-second"]
    return Line("reserve, always warm", f"{containers} x", containers * gigabytes * HOURS * 3600 * price)


def by_million(environment: Environment) -> Iterator[Line]:
    """A million requests on top."""
    million, seconds = PRICES["million"], REQUEST_SECONDS[environment.name]
    gigabytes = environment.functions.reserve_memory_mib / 1024
    yield Line("HTTP API", "1,000,000", million["http api request"])
    yield Line("reserve", f"{seconds * 1000:.0f} ms, {gigabytes:.2f} GB", _lambda(1_000_000, seconds, gigabytes))
    yield Line("Logs", f"{LOG_GB} GB", LOG_GB * PRICES["unit"]["log gb"])
    yield Line("X-Ray", f"{TRACED:.0%} of them", TRACED * million["x-ray trace"])


def _lambda(calls: int, seconds: float, gigabytes: float) -> float:
    compute = calls * seconds * gigabytes * PRICES["unit"]["lambda arm64 gb-second"]
    return float(compute + calls / 1e6 * PRICES["million"]["lambda request"])


def page() -> str:
    """The whole of docs/cost.md."""
    warm = provisioned(PROD, 20)
    return "\n".join(
        [
            "# What it costs",
            "",
            "Computed by `python -m infra.cost` from `infra/prices.toml`: on-demand list prices in",
            f"{PRICES['region']}, noted on {PRICES['noted']}, in US dollars, without free tiers. Traffic between",
            "zones and to the internet, and Cognito above its free users, come on top. A request's time is assumed.",
            "",
            *_section("At rest, a month", at_rest),
            *_section("By a million requests", by_million),
            "## What is left off by default",
            "",
            f"Twenty containers of reserve that are always warm (`-c functions.reserve_provisioned=20`) cost "
            f"${warm.dollars:,.2f} a month",
            f"in prod, or ${warm.dollars / HOURS:,.2f} an hour: turn them on for the hours of a sale.",
            "",
            *_evidence(),
        ]
    )


def _section(title: str, lines: Any) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    for environment in (DEV, PROD):
        found = list(lines(environment))
        yield f"| {environment.name} | quantity | $ |"
        yield "| --- | --- | ---: |"
        yield from (f"| {line.what} | {line.how_many} | {line.dollars:,.2f} |" for line in found)
        yield f"| **together** | | **{sum(line.dollars for line in found):,.2f}** |"
        yield ""


def _evidence() -> Iterator[str]:
    yield "## How far to believe the prices"
    yield ""
    yield "None was read from AWS's own price pages, whose numbers are filled in by script. They agree with:"
    yield ""
    yield "| price | compared with |"
    yield "| --- | --- |"
    yield from (f"| {row['prices']} | {row['source']} |" for row in PRICES["compared"])
    yield ""
    yield "Unverified, from memory:"
    yield ""
    yield from (f"- {row['prices']}: {row['why']}" for row in PRICES["unverified"])
    yield ""


if __name__ == "__main__":
    print(page(), end="")

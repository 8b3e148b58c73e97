"""The three servers a local run needs, real ones: Redis, a MySQL-family database, and moto for AWS."""

import contextlib
import os
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pymysql

from local.servers.aws import AwsServer
from local.servers.database import DatabaseServer, Family, create_database, has_database
from local.servers.processes import (
    Server,
    ServerError,
    SupervisedProcess,
    free_port,
    temporary_directory,
    wait_until,
)
from local.servers.redis import RedisServer

__all__ = [
    "AwsServer",
    "DatabaseServer",
    "RedisServer",
    "Server",
    "ServerError",
    "Servers",
    "SupervisedProcess",
    "free_port",
    "running_servers",
    "temporary_directory",
    "wait_until",
]


@dataclass(frozen=True)
class Servers:
    """Running servers. `database` and `redis` are None when they are the user's own."""

    directory: Path
    database_url: str
    redis_url: str
    aws_endpoint_url: str
    database: DatabaseServer | None
    redis: RedisServer | None
    aws: AwsServer


@contextlib.contextmanager
def running_servers(
    *,
    database_options: Sequence[str] = (),
    redis_options: Sequence[str] = (),
    redis_append_only: bool = False,
    redis_cluster: bool = False,
) -> Iterator[Servers]:
    """All three on free ports of 127.0.0.1 with their files in a temporary directory; gone after the block.

    SECKILL_TEST_DATABASE_URL and SECKILL_TEST_REDIS_URL, when set, name servers to use instead; the options
    then do nothing. The database named in the URL is made when it is missing. SECKILL_TEST_DATABASE_FAMILY, when set
    to MariaDB or MySQL, says which of the two to start.

    Raises:
        ServerError: one of them can't be had or reached.
    """
    database_url = os.environ.get("SECKILL_TEST_DATABASE_URL")
    redis_url = os.environ.get("SECKILL_TEST_REDIS_URL")
    with temporary_directory() as directory, contextlib.ExitStack() as running:
        aws = AwsServer(directory / "aws")
        database = redis = None
        if not database_url:
            database = DatabaseServer(directory / "database", family=_wanted_family(), options=database_options)
        if not redis_url:
            redis = RedisServer(
                directory / "redis",
                cluster=redis_cluster,
                append_only=redis_append_only,
                options=redis_options,
            )
        servers = [server for server in (aws, database, redis) if server]
        for server in servers:
            running.callback(server.stop)
        with ThreadPoolExecutor(len(servers)) as pool:
            for started in [pool.submit(server.start) for server in servers]:
                started.result()
        if database_url:
            _ensure_database(database_url)
        yield Servers(
            directory=directory,
            database_url=database.url if database else str(database_url),
            redis_url=redis.url if redis else str(redis_url),
            aws_endpoint_url=aws.url,
            database=database,
            redis=redis,
            aws=aws,
        )


def _wanted_family() -> Family | None:
    match os.environ.get("SECKILL_TEST_DATABASE_FAMILY", "").lower():
        case "":
            return None
        case "mariadb":
            return "MariaDB"
        case "mysql":
            return "MySQL"
    raise ServerError("SECKILL_TEST_DATABASE_FAMILY can be MariaDB or MySQL")


def _ensure_database(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    name = parts.path.lstrip("/")
    if parts.scheme != "mysql" or not parts.hostname or not name:
        raise ServerError("SECKILL_TEST_DATABASE_URL must look like mysql://user:password@host:3306/database")
    user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    login = (parts.hostname, parts.port or 3306, user, password)
    try:
        if not has_database(*login, name):  # a user who may not make databases can bring one along
            create_database(*login, name)
    except pymysql.Error as error:
        raise ServerError(f"SECKILL_TEST_DATABASE_URL: {error}") from error

"""The local servers: they start, answer, break and come back on demand, and nothing of them outlives the caller."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pymysql
import pytest
import redis

from local.servers import (
    DatabaseServer,
    RedisServer,
    Server,
    ServerError,
    SupervisedProcess,
    running_servers,
    wait_until,
)

GONE_WITHIN_S = 10


def query(url: str, statement: str) -> Any:
    """The first row of a statement on a connection of its own."""
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname
    with contextlib.closing(
        pymysql.connect(host=parts.hostname, port=parts.port or 3306, user="root", autocommit=True, read_timeout=5)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchone()


def is_gone(pid: int) -> bool:
    """A process that nobody has reaped yet is gone: it holds nothing any more."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    with DatabaseServer(tmp_path_factory.mktemp("database")) as server:
        yield server


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), append_only=True) as server:
        yield server


def test_the_three_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECKILL_TEST_DATABASE_URL", raising=False)
    monkeypatch.delenv("SECKILL_TEST_REDIS_URL", raising=False)
    with running_servers() as servers:
        assert query(servers.database_url, "SELECT 1") == (1,)
        with redis.Redis.from_url(servers.redis_url) as client:
            assert client.ping()
        sqs = boto3.client(
            "sqs",
            endpoint_url=servers.aws_endpoint_url,
            region_name="eu-west-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        assert "QueueUrl" in sqs.create_queue(QueueName="any")
        pids = [server.pid for server in (servers.database, servers.redis, servers.aws) if server]
    assert len(pids) == 3
    assert all(map(is_gone, pids))
    assert not servers.directory.exists()


def test_the_database_server_is_set_as_the_protocol_wants(database: DatabaseServer) -> None:
    names = ("time_zone", "innodb_lock_wait_timeout", "character_set_server", "max_connections")
    for name, value in zip(names, ("+00:00", 1, "utf8mb4", 300), strict=True):
        assert query(database.url, f"SELECT @@{name}") == (value,), name
    # MySQL 8 has no tx_isolation any more, MariaDB before 11.1 no transaction_isolation.
    isolation = query(database.url, "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
    assert isolation[1] == "READ-COMMITTED"


def test_database_servers_share_no_directory_for_temporary_tables(database: DatabaseServer) -> None:
    # A server that starts removes every temporary table that it finds there, also a running neighbour's.
    assert Path(query(database.url, "SELECT @@tmpdir")[0]).resolve() == database.directory.resolve()


def test_an_option_of_the_caller_wins_over_the_usual_ones(tmp_path: Path) -> None:
    with DatabaseServer(tmp_path, options=("--default-time-zone=+08:00",)) as server:
        assert query(server.url, "SELECT @@time_zone") == ("+08:00",)


def test_redis_evicts_and_saves_nothing(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("save")["save"] == ""


def test_committed_rows_survive_a_kill_of_the_database_server(database: DatabaseServer) -> None:
    url, pid = database.url, database.pid
    query(url, "CREATE TABLE seckill.kept (id INT PRIMARY KEY)")
    query(url, "INSERT INTO seckill.kept VALUES (7)")
    database.kill()
    assert is_gone(pid)
    database.restart()
    assert database.url == url
    assert query(url, "SELECT id FROM seckill.kept") == (7,)


def test_redis_with_its_file_remembers_over_a_restart_and_without_it_forgets(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as forgetful:
        for server, value in ((redis_server, b"1"), (forgetful, None)):
            with redis.Redis.from_url(server.url) as client:
                client.set("kept", "1")
            server.restart()
            with redis.Redis.from_url(server.url) as client:
                assert client.get("kept") == value


def test_a_frozen_server_accepts_and_does_not_answer_until_it_is_thawed(redis_server: RedisServer) -> None:
    redis_server.freeze()
    with (
        redis.Redis.from_url(redis_server.url, socket_timeout=0.3, socket_connect_timeout=0.3) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.ping()
    redis_server.thaw()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_a_frozen_server_stops_in_good_order_all_the_same(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        server.freeze()
    assert not server.alive
    assert "User requested shutdown" in server.log.read_text()


def test_a_one_node_cluster_refuses_keys_of_two_slots_in_one_call(tmp_path: Path) -> None:
    with RedisServer(tmp_path, cluster=True) as server, redis.Redis(port=server.port) as client:
        assert server.url.endswith("?cluster=true")
        assert client.mset({"{a}1": "x", "{a}2": "y"})
        with pytest.raises(redis.RedisError, match="slot"):
            client.mset({"a": "x", "b": "y"})


def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="no-such-directive") as failure:
        RedisServer(tmp_path, options=("no-such-directive 1",)).start()
    assert "\n" not in str(failure.value)


class NeverAnswers(Server):
    """Runs, and says nothing."""

    name = "silent"
    start_timeout_s = 0.3

    @property
    def url(self) -> str:
        return ""

    def command(self) -> list[str]:
        return ["sleep", "60"]

    def answers(self) -> bool:
        return False


def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    server = NeverAnswers(tmp_path)
    with pytest.raises(ServerError, match="silent did not answer in time"):
        server.start()
    assert is_gone(server.pid)


def test_a_database_program_that_does_not_work_here_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "mariadbd"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "mariadbd Ver 11.8.1-MariaDB" || exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with DatabaseServer(tmp_path / "database") as server:
        assert query(server.url, "SELECT 1") == (1,)


def test_servers_of_ones_own_are_used_as_they_are(
    database: DatabaseServer, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database.url.replace("/seckill", "/of_my_own")
    monkeypatch.setenv("SECKILL_TEST_DATABASE_URL", url)
    monkeypatch.setenv("SECKILL_TEST_REDIS_URL", redis_server.url)
    with running_servers() as servers:
        assert (servers.database, servers.redis) == (None, None)
        assert (servers.database_url, servers.redis_url) == (url, redis_server.url)
    assert query(url, "SHOW DATABASES LIKE 'of_my_own'") == ("of_my_own",)
    assert database.alive


def test_a_database_of_ones_own_is_used_by_a_user_who_may_not_make_databases(
    database: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.create_database("given")
    query(database.url, "CREATE USER guest@'%' IDENTIFIED BY 's e/cret'")
    query(database.url, "GRANT SELECT ON given.* TO guest@'%'")
    url = f"mysql://guest:s%20e%2Fcret@127.0.0.1:{database.port}/given"
    monkeypatch.setenv("SECKILL_TEST_DATABASE_URL", url)
    with running_servers() as servers:
        assert servers.database_url == url
    monkeypatch.setenv("SECKILL_TEST_DATABASE_URL", url.replace("/given", "/not_given"))
    with pytest.raises(ServerError, match="Access denied"), running_servers():
        pass


def test_nothing_outlives_a_caller_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECKILL_TEST_DATABASE_URL", raising=False)
    monkeypatch.delenv("SECKILL_TEST_REDIS_URL", raising=False)
    script = (
        "import sys, time\n"
        "from local.servers import running_servers\n"
        "with running_servers() as servers:\n"
        "    print(servers.directory, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        directory = Path(caller.stdout.readline().strip())
        family = psutil.Process(caller.pid).children(recursive=True)
        caller.send_signal(signal.SIGKILL)
    # Three servers, the watcher of each, and whoever removes the directory.
    assert len(family) == 7
    assert wait_until(lambda: all(is_gone(process.pid) for process in family), GONE_WITHIN_S)
    assert wait_until(lambda: not directory.exists(), GONE_WITHIN_S)


def test_children_of_a_child_end_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = SupervisedProcess(["sh", "-c", "sleep 60 & echo $!; wait"], log=log)
    assert wait_until(lambda: log.exists() and log.read_text().endswith("\n"), 10)
    grandchild = int(log.read_text())
    assert not is_gone(grandchild)
    process.terminate()
    assert process.exit_status == -signal.SIGTERM
    assert wait_until(lambda: is_gone(grandchild), GONE_WITHIN_S)


def test_a_child_that_ignores_being_asked_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = SupervisedProcess(["sh", "-c", "trap '' TERM; echo ready; sleep 60; sleep 60"], log=log)
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(), 10)
    process.terminate(timeout_s=0.3)
    assert process.exit_status == -signal.SIGKILL

"""What is broken, and how: processes are killed and frozen at random, and come back, Redis not always as it was."""

import contextlib
import functools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psutil
import redis

from local.environment import process_environment
from local.servers import RedisServer, Server, Servers, SupervisedProcess
from local.stack import Stack
from local.state import CHECKOUT

# Between two evils.
LONGEST_PAUSE_SECONDS = 1.0
# Of our own programs; beside them one server, since with two of those away nothing happens that could go wrong.
MOST_BROKEN_PROGRAMS = 2
# After a server is back it is left alone for as long as it takes to do some business.
BREATH_SECONDS = 1.5
# Things stay away from a hiccup to longer than any time-out of reserve and the stale age of a run; servers that were
# killed are back sooner, as after a fail-over.
SHORTEST_SECONDS, LONGEST_SECONDS, LONGEST_FAIL_OVER_SECONDS = 0.1, 6.0, 1.0
# The gateway's server gives up when a worker dies twice within 5.5 s. On AWS nobody counts.
WORKER_DEATHS_APART_SECONDS = 6.0

# A frozen server is thawed by the thread that asks it.
CLIENT_SECONDS = 1.0
SERVERS = ("redis", "database", "SQS")

# Puts right what an evil has broken.
Repair = Callable[[], None]


class NotNow(Exception):
    """The evil finds nothing to strike, or would strike too soon."""


@dataclass(frozen=True)
class Evil:
    """`strike` returns its repair, if it needs one. Raises NotNow."""

    target: str
    name: str
    strike: Callable[[], Repair | None]
    weight: int
    longest_seconds: float = LONGEST_SECONDS

    @property
    def on_a_server(self) -> bool:
        return self.target in SERVERS

    def __str__(self) -> str:
        return f"{self.target} {self.name}"


@dataclass(frozen=True)
class Event:
    """Something done at `at`, seconds since 1970."""

    at: float
    what: str


@dataclass
class _Broken:
    evil: Evil
    repair: Repair
    until: float


class Nemesis:
    """Strikes until told to stop, then repairs everything; what it does it adds to `events`."""

    def __init__(self, servers: Servers, stack: Stack, dice: random.Random, events: list[Event]) -> None:
        self._dice = dice
        self._programs = {
            program.log.stem: _Program(program, stack.environment)
            for program in (stack.gateway, stack.poller, stack.scheduler, stack.rebuild_poller)
            if program
        }
        self._evils = [*_server_evils(servers, dice), *_program_evils(self._programs, dice)]
        self._broken: list[_Broken] = []
        self._servers_may_break = 0.0
        self._events = events

    def rage(self, seconds: float, stopping: threading.Event) -> None:
        """Break things for so long, or until `stopping` is set. Everything is repaired afterwards, whatever happens."""
        ends = time.monotonic() + seconds
        try:
            while time.monotonic() < ends and not stopping.wait(self._dice.uniform(0, LONGEST_PAUSE_SECONDS)):
                self._repair(due_by=time.monotonic())
                self._strike()
        finally:
            self._repair(due_by=float("inf"))

    def _strike(self) -> None:
        possible = [evil for evil in self._evils if self._may_happen(evil)]
        if not possible:
            return
        evil = self._dice.choices(possible, [evil.weight for evil in possible])[0]
        # Short ones are as frequent as long ones on a logarithmic scale.
        seconds = SHORTEST_SECONDS * (evil.longest_seconds / SHORTEST_SECONDS) ** self._dice.random()
        try:
            repair = evil.strike()
        except NotNow:
            return
        self._note(str(evil) + (f" for {seconds:.1f} s" if repair else ""))
        if repair:
            self._broken.append(_Broken(evil, repair, time.monotonic() + seconds))
        elif evil.on_a_server:
            self._servers_may_break = time.monotonic() + BREATH_SECONDS

    def _may_happen(self, evil: Evil) -> bool:
        broken = [one.evil for one in self._broken if one.evil.on_a_server == evil.on_a_server]
        if evil.on_a_server:
            return not broken and time.monotonic() >= self._servers_may_break
        return len(broken) < MOST_BROKEN_PROGRAMS and evil.target not in {one.target for one in broken}

    def _repair(self, due_by: float) -> None:
        for broken in [broken for broken in self._broken if broken.until <= due_by]:
            broken.repair()
            self._broken.remove(broken)
            self._note(f"{broken.evil.target} is back")
            if broken.evil.on_a_server:
                self._servers_may_break = time.monotonic() + BREATH_SECONDS
        broken_now = {broken.evil.target for broken in self._broken}
        for name, program in self._programs.items():
            if name not in broken_now and not program.process.alive:
                self._note(f"{name} ended by itself: {program.process.last_words()}")
                program.start()

    def end_programs(self) -> None:
        """Those that were started again are nobody else's."""
        for program in self._programs.values():
            program.process.terminate()

    def _note(self, what: str) -> None:
        self._events.append(Event(time.time(), what))


def _server_evils(servers: Servers, dice: random.Random) -> Iterator[Evil]:
    """moto keeps its queues in memory, so it is only frozen."""
    assert servers.redis and servers.database, "servers that are somebody's own are not killed"
    soon = LONGEST_FAIL_OVER_SECONDS
    one = _Redis(servers.redis, dice)
    yield Evil("the replica", "gets all there is", one.save, 8)
    yield Evil("redis", "killed, comes back with what it had at the last save", one.kill, 12, soon)
    yield Evil("redis", "saved and killed", one.save_and_kill, 4, soon)
    yield Evil("redis", "killed, comes back empty", one.kill_and_forget, 4, soon)
    yield Evil("redis", "flushed", one.flush, 4)
    yield Evil("redis", "given a wrong stock", one.make_wrong, 8)
    yield Evil("redis", "frozen", functools.partial(_freeze, servers.redis), 4)
    yield Evil("database", "killed", functools.partial(_kill, servers.database), 8, soon)
    yield Evil("database", "frozen", functools.partial(_freeze, servers.database), 6)
    yield Evil("database", "frozen, then killed", functools.partial(_hang, servers.database), 6)
    yield Evil("SQS", "frozen", functools.partial(_freeze, servers.aws), 4)


def _program_evils(programs: Mapping[str, "_Program"], dice: random.Random) -> Iterator[Evil]:
    for name, program in programs.items():
        containers = _Containers(program, dice)
        # Without the gateway nobody buys: once in a while will do.
        yield Evil(name, "killed", program.kill, 1 if name == "gateway" else 4, LONGEST_FAIL_OVER_SECONDS)
        yield Evil(f"a container of the {name}", "killed", containers.kill, 4)
        yield Evil(f"a container of the {name}", "frozen", containers.freeze, 8)


def _kill(server: Server) -> Repair:
    server.kill()
    return server.start


def _freeze(server: Server) -> Repair:
    server.freeze()
    return server.thaw


def _hang(server: Server) -> Repair:
    """What it was asked meanwhile is lost."""
    server.freeze()
    return server.restart


class _Redis:
    """A server that saves only when told to: killed, it comes back with what it had at the last save."""

    def __init__(self, server: RedisServer, dice: random.Random) -> None:
        self._server = server
        self._client = redis.Redis.from_url(server.url, socket_timeout=CLIENT_SECONDS)
        self._file = server.directory / "dump.rdb"
        self._dice = dice

    def save(self) -> None:
        """What there is now is what a killed server comes back with."""
        try:
            self._client.save()
        except redis.RedisError:  # it is broken already
            raise NotNow from None

    def kill(self) -> Repair:
        """A fail-over that loses what was written since the last save, sometimes a long time ago."""
        self._server.kill()
        return self._server.start

    def save_and_kill(self) -> Repair:
        """Next to nothing is lost."""
        self.save()
        return self.kill()

    def kill_and_forget(self) -> Repair:
        repair = self.kill()
        self._file.unlink(missing_ok=True)
        return repair

    def flush(self) -> None:
        self._client.flushall()

    def make_wrong(self) -> None:
        """The stock of some sales is another by some units, as after a slip of somebody's hand."""
        for key in sorted(self._client.scan_iter("seckill:{*}:sale")):
            self._client.hincrby(key, "stock", self._dice.choice((-4, -2, 0, 0, 2, 8)))


class _Program:
    """A process of the stack that can be started again as it was."""

    def __init__(self, process: SupervisedProcess, environment: dict[str, str]) -> None:
        self.process = process
        self._command = psutil.Process(process.pid).cmdline()
        self._environment = process_environment(environment)

    def kill(self) -> Repair:
        self.process.kill()
        return self.start

    def start(self) -> None:
        self.process = SupervisedProcess(self._command, log=self.process.log, env=self._environment, cwd=CHECKOUT)


class _Containers:
    """The processes in which a program's function runs."""

    def __init__(self, program: _Program, dice: random.Random) -> None:
        self._program = program
        self._dice = dice
        self._next_death = 0.0

    def kill(self) -> None:
        """Whoever keeps them starts another."""
        if time.monotonic() < self._next_death:
            raise NotNow
        self._next_death = time.monotonic() + WORKER_DEATHS_APART_SECONDS
        self._one().send_signal(signal.SIGKILL)

    def freeze(self) -> Repair:
        """It wakes up later and goes on where it was."""
        container = self._one()
        container.suspend()
        return lambda: _wake(container)

    def _one(self) -> psutil.Process:
        """One that runs now; the program may be dead, or just be starting."""
        try:
            children = psutil.Process(self._program.process.pid).children()
            # The watcher that ends the group with us is a shell.
            containers = [child for child in children if child.cmdline()[:1] == [sys.executable]]
        except psutil.NoSuchProcess:
            containers = []
        if not containers:
            raise NotNow
        return self._dice.choice(containers)


def _wake(container: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # killed meanwhile, with its program
        container.resume()

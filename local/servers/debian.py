"""Unpacks a database server from Debian's or Ubuntu's packages into a directory of ours.

Nothing is installed and nothing of the system changes: apt works with the machine's own sources and keys, but
with lists, cache and an (empty) package status of its own. So it names every package that the server needs,
down to libc; all are unpacked side by side, and the server runs with their loader and libraries. Root is not
needed.
"""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from local.servers.processes import ServerError

# Enough for 15 MB of packages and 30 MB of lists over a slow line; a mirror that hangs ends here.
_APT_TIMEOUT_S = 900

_CONFIGURATION = """\
// The system's hooks are for the system's own updates.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Post-Invoke;
Dir::State "{work}";
Dir::State::status "{work}/status";
Dir::Cache "{work}";
Dir::Cache::archives "{work}/archives";
// Else root would become _apt, who may not write here.
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
"""


def unpacked(directory: Path, families: Sequence[str]) -> Path:
    """The root of an unpacked server of the first of `families` ("mariadb", "mysql") that apt knows.

    It is fetched once and stays in `directory`; two processes that come at once fetch it once. Debian has MySQL only
    in sid: when nothing else is wanted there, it comes with its libraries from that suite of the machine's mirror.

    Raises:
        ServerError: this is no Debian or Ubuntu, or apt can't get it.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ServerError("no apt here to fetch one with")
    here = [directory / family for family in families]
    if found := next(filter(Path.exists, here), None):
        return found
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "lock"):
        if found := next(filter(Path.exists, here), None):
            return found
        work = directory / "apt"
        try:
            return _fetched(work, directory, families)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the process, however that ends
        yield


def _fetched(work: Path, directory: Path, families: Sequence[str]) -> Path:
    _prepare(work)
    print("fetching a database server with apt into .tools, once ...", file=sys.stderr)  # noqa: T201
    try:
        return _fetched_from_sources(work, directory, families)
    except ServerError:
        if list(families) != ["mysql"] or platform.freedesktop_os_release().get("ID") != "debian":
            raise
    _use_only_sid(work)
    return _fetched_from_sources(work, directory, families)


def _fetched_from_sources(work: Path, directory: Path, families: Sequence[str]) -> Path:
    # A broken source among many fails the update but not the others' lists: what matters is the next step.
    last = _apt(work, "apt-get", "-q", "update")
    for family in families:
        for package in _packages(work, family):
            last = _apt(work, "apt-get", "-qq", "install", "--yes", "--download-only", package)
            if last.returncode == 0:
                return _unpack(work, directory / family)
    wanted = " or ".join(f"{family}-server-core" for family in families)
    raise ServerError(f"apt can't fetch {wanted}: {_complaint(last)}")


def _prepare(work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)  # of a fetch that was cut off
    for part in ("lists/partial", "archives/partial"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    (work / "apt.conf").write_text(_CONFIGURATION.format(work=work))


def _use_only_sid(work: Path) -> None:
    """From now on apt knows one source: sid on the mirror that the machine uses for its own release."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    wanted = ("Created-By: Packages", f"Release: {release}", "Component: main")
    mirrors = _apt(work, "apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).stdout.split()
    if not mirrors:
        raise ServerError(f"no apt source for {release or 'this release'} main on this machine")
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(f"deb [signed-by={keys}] {mirrors[0]} sid main\n")
    with (work / "apt.conf").open("a") as configuration:
        configuration.write(f'Dir::Etc::sourcelist "{work}/sources.list";\nDir::Etc::sourceparts "-";\n')


def _apt(work: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [program, "-c", str(work / "apt.conf"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            timeout=_APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"{program} {arguments[-1]} took more than {_APT_TIMEOUT_S} s") from error


def _complaint(run: "subprocess.CompletedProcess[str]") -> str:
    failures = (line for line in run.stdout.splitlines() if line.startswith(("E: ", "W: Failed")))
    return next(failures, "its sources are read, but no such package is in them")


def _packages(work: Path, family: str) -> list[str]:
    """mariadb-server-core, or with the version in its name as in Ubuntu 22.04 (the highest first)."""
    prefix = f"{family}-server-core"
    names = _apt(work, "apt-cache", "pkgnames", prefix).stdout.split()
    versions = {name: re.fullmatch(rf"{prefix}(?:-([\d.]+))?", name) for name in names}

    def newness(name: str) -> tuple[float, ...]:
        version = (versions[name] or [""])[1]
        return tuple(map(float, version.split("."))) if version else (float("inf"),)

    return sorted((name for name in names if versions[name]), key=newness, reverse=True)


def _unpack(work: Path, target: Path) -> Path:
    root = work / "root"
    for package in sorted((work / "archives").glob("*.deb")):
        done = subprocess.run(["dpkg-deb", "-x", package, root], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"cannot unpack {package.name}: {done.stderr.strip()}")
    return root.rename(target)  # all or nothing


def loader_command(root: Path) -> tuple[str, ...]:
    """What must stand before a program of `root`, so that it runs with the loader and libraries there."""
    loaders = [*root.glob("lib/*/ld-linux*.so.*"), *root.glob("usr/lib/*/ld-linux*.so.*")]
    loader = next(iter(loaders), None)
    if loader is None:
        raise ServerError(f"no loader under {root}: remove that directory to fetch the server anew")
    architecture = loader.parent.name
    libraries = f"{root}/lib/{architecture}:{root}/usr/lib/{architecture}"
    return (str(loader), "--library-path", libraries)

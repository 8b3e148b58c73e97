"""Sets the checkout up: fetches the pinned uv into .tools/ and lets it make .venv/ from uv.lock.

    python3 tools/bootstrap.py [GROUP ...]      the dependency groups that are wanted; all when none is named

Needs Python >= 3.9 and nothing else: no pip, no ensurepip. Packages come from the index that pip is told to
use. Writes only into .tools/, .venv/ and the user's package cache (.tools/ when there is no usable home).
Does nothing, quickly, when all that is wanted is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import package_index
from pip_configuration import PipConfiguration, read_pip_configuration

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".tools"
VENV = ROOT / ".venv"
STAMP = VENV / "bootstrap.json"

UV_VERSION = "0.13.9"
# By system and machine: the wheel's tag and its SHA-256. The Linux ones need no glibc and run everywhere.
UV_WHEELS = {
    ("Linux", "x86_64"): (
        "musllinux_1_1_x86_64",
        "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
    ),
    ("Linux", "aarch64"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
    ),
    ("Darwin", "x86_64"): (
        "macosx_10_12_x86_64",
        "c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5",
    ),
    ("Darwin", "arm64"): (
        "macosx_11_0_arm64",
        "66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63",
    ),
}


class SetUpError(Exception):
    """What can't be had and what to do about it, in one line."""


def set_up(wanted: frozenset[str]) -> None:
    """Makes sure that the `wanted` dependency groups are installed; the empty set stands for all.

    Raises:
        SetUpError: something can't be had.
    """
    fingerprint = _fingerprint()
    if _is_set_up(wanted, fingerprint):
        return
    TOOLS.mkdir(exist_ok=True)
    with _locked(TOOLS / "lock"):
        if _is_set_up(wanted, fingerprint):  # by another process, meanwhile
            return
        pip = _configuration()
        uv = _Uv(_fetched_uv(pip), pip)
        uv.ensure_python()
        installed = _installed_groups(fingerprint)
        if _stamp().get("root", str(ROOT)) != str(ROOT):
            shutil.rmtree(VENV)  # the checkout was moved, and the programs in it have their old place written in them
        STAMP.unlink(missing_ok=True)
        uv.install(wanted)
        groups = wanted if installed is None else _union(wanted, installed)
        STAMP.write_text(json.dumps({"root": str(ROOT), "fingerprint": fingerprint, "groups": sorted(groups)}))


# --- what is there already


def _fingerprint() -> str:
    """Changes with everything that decides what is installed."""
    digest = hashlib.sha256(UV_VERSION.encode())
    for name in ("uv.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _stamp() -> dict[str, Any]:
    try:
        return dict(json.loads(STAMP.read_text()))
    except (OSError, ValueError):  # not there, or cut off
        return {}


def _installed_groups(fingerprint: str) -> frozenset[str] | None:
    """None when nothing is installed by this state of the files, here."""
    stamp = _stamp()
    here = stamp.get("root") == str(ROOT) and stamp.get("fingerprint") == fingerprint
    return frozenset(stamp["groups"]) if here else None


def _union(groups: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    return groups | others if groups and others else frozenset()  # the empty set stands for all


def _is_set_up(wanted: frozenset[str], fingerprint: str) -> bool:
    installed = _installed_groups(fingerprint)
    return (
        installed is not None
        and _union(wanted, installed) == installed
        # A link, which dangles after an upgrade of the system's Python.
        and (VENV / "bin" / "python").exists()
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the process, however that ends
        yield


# --- uv


def _configuration() -> PipConfiguration:
    """pip's, unless uv is told something itself."""
    pip = read_pip_configuration(os.environ)
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    return dataclasses.replace(pip, index_url=index) if index else pip


def _fetched_uv(pip: PipConfiguration) -> Path:
    """The pinned uv; fetched when it is not there."""
    program = TOOLS / f"uv-{UV_VERSION}" / "uv"
    if program.exists():
        return program
    system, machine = platform.system(), platform.machine()
    if (system, machine) not in UV_WHEELS:
        raise SetUpError(f"uv is pinned for Linux and macOS on x86_64 and arm64, not for {system} on {machine}")
    tag, sha256 = UV_WHEELS[system, machine]
    name = f"uv-{UV_VERSION}-py3-none-{tag}.whl"
    _say(f"fetching uv {UV_VERSION}")
    try:
        wheel = package_index.fetch("uv", name, sha256, pip)
    except package_index.NotFetchedError as error:
        raise SetUpError(
            f"cannot fetch {name} ({error}): PIP_INDEX_URL or pip.conf can name an index, PIP_CERT its certificates"
        ) from error
    program.parent.mkdir(exist_ok=True)
    part = program.with_suffix(".part")
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        part.write_bytes(archive.read(f"uv-{UV_VERSION}.data/scripts/uv"))
    part.chmod(0o755)
    return part.replace(program)


class _Uv:
    """The fetched uv, told what pip is told."""

    def __init__(self, program: Path, pip: PipConfiguration) -> None:
        self._program = program
        self._pip = pip
        self._environment = _uv_environment(pip)

    def ensure_python(self) -> None:
        """A Python that pyproject.toml allows: the machine's, else one that uv downloads into .tools/."""
        if self._run("python", "find", "--no-python-downloads", quiet=True).returncode == 0:
            return
        _say("no Python >= 3.11 here: downloading one")
        done = self._run("python", "install", "--no-bin", "3.13", quiet=True)
        if done.returncode != 0:
            raise SetUpError(
                f"no Python >= 3.11 here, and uv can't download one ({_last_line(done.stderr)}): install "
                "python3.11 or newer, or name a mirror of python-build-standalone in UV_PYTHON_INSTALL_MIRROR"
            )

    def install(self, groups: frozenset[str]) -> None:
        """Makes .venv hold the project and these groups, as uv.lock pins them.

        Other packages stay: a demo must not take the tests' packages away.
        """
        chosen = ["--no-default-groups", *(f"--group={group}" for group in sorted(groups))]
        if not groups:
            chosen = ["--all-groups"]
        if self._pip.is_pypi:
            self._must("sync", "--locked", "--inexact", *chosen)
        else:
            self._install_from_other_index(chosen)

    def _install_from_other_index(self, chosen: list[str]) -> None:
        """`uv sync` takes files only from the addresses in uv.lock, whatever index is set: so by way of a
        requirements file, whose hashes every index's files must match."""
        requirements = str(TOOLS / "requirements.txt")
        self._must("export", "--frozen", "--no-emit-project", "--quiet", *chosen, "--output-file", requirements)
        self._must("venv", "--allow-existing", "--quiet", str(VENV))
        python = ["--python", str(VENV / "bin" / "python"), *_index_options(self._pip)]
        self._must("pip", "install", "--no-deps", "--require-hashes", *python, "--requirements", requirements)
        self._must("pip", "install", "--no-deps", *python, "--editable", str(ROOT))

    def _must(self, *arguments: str) -> None:
        if self._run(*arguments).returncode != 0:
            raise SetUpError(f"`uv {arguments[0]}` failed, for the reason above")

    def _run(self, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._program), *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=quiet,
            text=True,
            check=False,
        )


def _uv_environment(pip: PipConfiguration) -> dict[str, str]:
    """What the user set for uv itself is left alone, but for the place of the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment["UV_PROJECT_ENVIRONMENT"] = str(VENV)
    environment.setdefault("UV_PYTHON_INSTALL_DIR", str(TOOLS / "python"))
    if not _has_cache_home(environment):
        environment.setdefault("UV_CACHE_DIR", str(TOOLS / "uv-cache"))
    told = {
        "SSL_CERT_FILE": pip.certificates,
        "SSL_CLIENT_CERT": pip.client_certificate,
        "UV_INSECURE_HOST": " ".join(pip.trusted_hosts),
        "HTTPS_PROXY": pip.proxy,
        "HTTP_PROXY": pip.proxy,
    }
    for name, value in told.items():
        if value and not environment.get(name):
            environment[name] = value
    return environment


def _has_cache_home(environment: dict[str, str]) -> bool:
    """Whether uv's usual place for its cache can be written."""
    home = environment.get("HOME", "")
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(home) / ".cache")
    if not cache.is_absolute():
        return False
    existing = next(folder for folder in (cache / "uv", cache, *cache.parents) if folder.exists())
    return os.access(existing, os.W_OK) and existing != Path("/")


def _index_options(pip: PipConfiguration) -> list[str]:
    options = [f"--find-links={place}" for place in pip.find_links]
    if pip.no_index:
        return ["--no-index", *options]
    return [f"--default-index={pip.index_url}", *(f"--index={url}" for url in pip.extra_index_urls), *options]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[-1].strip()


def _say(text: str) -> None:
    print(f"bootstrap: {text} ...", file=sys.stderr)


if __name__ == "__main__":
    try:
        set_up(frozenset(sys.argv[1:]))
    except SetUpError as error:
        sys.exit(f"bootstrap: {error}")
    except PermissionError as error:
        sys.exit(f"bootstrap: cannot write {error.filename}: make the checkout writable for this user")
    except OSError as error:  # a full disk
        sys.exit(f"bootstrap: {error}")
    except KeyboardInterrupt:
        sys.exit(130)

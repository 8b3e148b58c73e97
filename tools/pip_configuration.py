"""What pip's configuration says about package indexes, read without pip.

The order is pip's own, later ones win: the machine's files, the user's (unless PIP_CONFIG_FILE names a file
that is there), the interpreter's, the file of PIP_CONFIG_FILE. What they say under `[install]` goes before
what they say under `[global]`, and PIP_* variables go before both.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class PipConfiguration:
    """The settings that matter for fetching packages."""

    index_url: str = PYPI
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    certificates: str | None = None
    client_certificate: str | None = None
    proxy: str | None = None

    @property
    def is_pypi(self) -> bool:
        """Whether packages come from where uv.lock says."""
        return self.index_url.rstrip("/") == PYPI and not self.no_index


def read_pip_configuration(environment: Mapping[str, str]) -> PipConfiguration:
    """Files that are missing, unreadable or malformed count as empty: set-up can go on without them."""
    files = [_read(file) for file in _files(environment)]
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        for file in files:
            if file.has_section(section):
                settings.update((_normal(name), value) for name, value in file.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            settings[_normal(name[len("PIP_") :])] = value
    return PipConfiguration(
        index_url=settings.get("index-url", PYPI).strip(),
        extra_index_urls=tuple(settings.get("extra-index-url", "").split()),
        find_links=tuple(settings.get("find-links", "").split()),
        no_index=settings.get("no-index", "").strip().lower() in ("1", "true", "yes", "on", "y", "t"),
        trusted_hosts=tuple(settings.get("trusted-host", "").split()),
        certificates=settings.get("cert"),
        client_certificate=settings.get("client-cert"),
        proxy=settings.get("proxy"),
    )


def _files(environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:  # pip's way to say: no file at all
        return []
    user = [] if named and Path(named).exists() else _user_files(environment)
    return [
        *_machine_files(environment),
        *user,
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]


def _machine_files(environment: Mapping[str, str]) -> list[Path]:
    if sys.platform == "darwin":
        return [Path("/Library/Application Support/pip/pip.conf")]
    folders = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    return [*(Path(folder) / "pip" / "pip.conf" for folder in folders if folder), Path("/etc/pip.conf")]


def _user_files(environment: Mapping[str, str]) -> list[Path]:
    if not environment.get("HOME"):
        return []
    home = Path(environment["HOME"])
    legacy = home / ".pip" / "pip.conf"
    if sys.platform == "darwin":
        library = home / "Library" / "Application Support" / "pip"
        return [legacy, (library if library.is_dir() else home / ".config" / "pip") / "pip.conf"]
    return [legacy, Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"]


def _read(file: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    with contextlib.suppress(OSError, UnicodeDecodeError, configparser.Error):
        parser.read_string(file.read_text(encoding="utf-8"))
    return parser


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")

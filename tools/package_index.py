"""Fetches one pinned file from the package indexes that pip is configured to use, without pip."""

from __future__ import annotations

import base64
import hashlib
import ssl
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

from pip_configuration import PipConfiguration

_TIMEOUT_S = 60  # for each network operation, not for the whole download


class NotFetchedError(Exception):
    """No index gave the file; the message says what each one answered, in one line."""


def fetch(project: str, name: str, sha256: str, pip: PipConfiguration) -> bytes:
    """The file `name` of `project` with that hash, from the first place that has it.

    Raises:
        NotFetchedError: no place has it.
    """
    indexes = () if pip.no_index else (pip.index_url, *pip.extra_index_urls)
    problems = []
    for place in (*pip.find_links, *(f"{index.rstrip('/')}/{project}/" for index in indexes)):
        try:
            reader = _Reader(pip)
            content = reader.read(_link(name, place, reader))
        except (OSError, ValueError, LookupError) as error:  # unreachable, malformed, or not there
            problems.append(f"{_without_password(place)}: {error}")
            continue
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
        problems.append(f"{_without_password(place)}: its {name} has another hash than the pinned one")
    raise NotFetchedError("; ".join(problems) or "pip is told to use no index")


def _link(name: str, place: str, reader: _Reader) -> str:
    """The address of the file in a folder or on a page of links. Raises LookupError when it is not there."""
    folder = Path(urllib.request.url2pathname(place[len("file://") :]) if place.startswith("file://") else place)
    if folder.is_dir() and (folder / name).exists():
        return (folder / name).as_uri()
    if folder.is_dir():
        place = (folder / "index.html").as_uri()
    page = _Links()
    page.feed(reader.read(place).decode("utf-8", "replace"))
    for link in page.links:
        address = urllib.parse.urljoin(place, link)
        if urllib.parse.unquote(urllib.parse.urlsplit(address).path).endswith(f"/{name}"):
            return address
    raise LookupError(f"has no {name}")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


class _Reader:
    """Reads addresses with pip's certificates, proxy and trusted hosts."""

    def __init__(self, pip: PipConfiguration) -> None:
        """Raises OSError when a certificate file can't be read."""
        self._trusted_hosts = pip.trusted_hosts
        self._proxies = {"http": pip.proxy, "https": pip.proxy} if pip.proxy else None
        self._verifying = _verifying(pip.certificates)
        self._trusting = ssl.create_default_context()
        self._trusting.check_hostname = False
        self._trusting.verify_mode = ssl.CERT_NONE
        if pip.client_certificate:
            for context in (self._verifying, self._trusting):
                context.load_cert_chain(pip.client_certificate)

    def read(self, address: str) -> bytes:
        parts = urllib.parse.urlsplit(address)
        host = parts.hostname or ""
        trusted = host in self._trusted_hosts or f"{host}:{parts.port}" in self._trusted_hosts
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._trusting if trusted else self._verifying),
            urllib.request.ProxyHandler(self._proxies),  # None: as the environment says
        )
        request = urllib.request.Request(
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            headers={"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.5, */*;q=0.1"},
        )
        if parts.username:
            credentials = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode())
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())


def _verifying(certificates: str | None) -> ssl.SSLContext:
    if not certificates:
        return ssl.create_default_context()
    if Path(certificates).is_dir():
        return ssl.create_default_context(capath=certificates)
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise OSError(f"the certificate file {certificates}: {error}") from error


def _without_password(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

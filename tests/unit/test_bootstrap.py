"""The set-up reads pip's configuration as pip does, fetches only the pinned file, and costs nothing when done."""

import hashlib
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of tools/, which is no package: its files run with nothing installed."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module(name)


@pytest.fixture
def pip_configuration(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("pip_configuration", monkeypatch)


@pytest.fixture
def package_index(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("package_index", monkeypatch)


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("bootstrap", monkeypatch)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip_configuration: ModuleType) -> dict[str, str]:
    """The environment of a machine whose only configuration files are the test's own."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    usual = pip_configuration._machine_files
    monkeypatch.setattr(
        pip_configuration, "_machine_files", lambda env: [file for file in usual(env) if file != Path("/etc/pip.conf")]
    )
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "machine")}


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_without_any_configuration_packages_come_from_pypi(
    pip_configuration: ModuleType, machine: dict[str, str]
) -> None:
    assert pip_configuration.read_pip_configuration(machine) == pip_configuration.PipConfiguration()
    assert pip_configuration.PipConfiguration().is_pypi


def test_each_place_overrides_the_one_before_it(
    pip_configuration: ModuleType, machine: dict[str, str], tmp_path: Path
) -> None:
    places = [
        tmp_path / "machine" / "pip" / "pip.conf",
        tmp_path / "home" / ".pip" / "pip.conf",
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        tmp_path / "prefix" / "pip.conf",
    ]
    for place in places:
        url = f"https://{place.parent}/simple"
        write(place, f"[global]\nindex-url = {url}\n")
        assert pip_configuration.read_pip_configuration(machine).index_url == url
    with_variable = {**machine, "PIP_INDEX_URL": "https://variable/simple"}
    assert pip_configuration.read_pip_configuration(with_variable).index_url == "https://variable/simple"


def test_a_named_file_replaces_the_users_and_overrides_the_machines(
    pip_configuration: ModuleType, machine: dict[str, str], tmp_path: Path
) -> None:
    write(
        tmp_path / "machine" / "pip" / "pip.conf", "[global]\nindex-url = https://machine/simple\ncert = /machine.pem\n"
    )
    write(tmp_path / "home" / ".config" / "pip" / "pip.conf", "[global]\nproxy = http://user\n")
    named = write(tmp_path / "named.conf", "[global]\nindex-url = https://named/simple\n")
    read = pip_configuration.read_pip_configuration({**machine, "PIP_CONFIG_FILE": str(named)})
    assert (read.index_url, read.certificates, read.proxy) == ("https://named/simple", "/machine.pem", None)
    nothing = pip_configuration.read_pip_configuration({**machine, "PIP_CONFIG_FILE": "/dev/null"})
    assert nothing == pip_configuration.PipConfiguration()


def test_what_holds_for_install_goes_before_what_holds_for_all_in_any_file(
    pip_configuration: ModuleType, machine: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "machine" / "pip" / "pip.conf", "[install]\nindex-url = https://install/simple\n")
    write(tmp_path / "home" / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://global/simple\n")
    assert pip_configuration.read_pip_configuration(machine).index_url == "https://install/simple"


def test_lists_and_underscores_are_read_as_pip_reads_them(
    pip_configuration: ModuleType, machine: dict[str, str], tmp_path: Path
) -> None:
    write(
        tmp_path / "machine" / "pip" / "pip.conf",
        "[global]\nextra_index_url =\n    https://one/simple\n    https://two/simple\nno-index = yes\n"
        "trusted-host = one two:8080\nfind-links = /wheels\n",
    )
    read = pip_configuration.read_pip_configuration(machine)
    assert read.extra_index_urls == ("https://one/simple", "https://two/simple")
    assert (read.no_index, read.trusted_hosts, read.find_links) == (True, ("one", "two:8080"), ("/wheels",))
    assert not read.is_pypi


@pytest.mark.parametrize("home", ["", None])
def test_an_empty_or_missing_home_means_no_user_files(
    home: str | None, pip_configuration: ModuleType, machine: dict[str, str]
) -> None:
    environment = {name: value for name, value in machine.items() if name != "HOME"}
    if home is not None:
        environment["HOME"] = home
    assert pip_configuration.read_pip_configuration(environment) == pip_configuration.PipConfiguration()


def test_a_broken_file_counts_as_empty(pip_configuration: ModuleType, machine: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "machine" / "pip" / "pip.conf", "index-url = no section\n")
    assert pip_configuration.read_pip_configuration(machine) == pip_configuration.PipConfiguration()


WHEEL = "tool-1.0-py3-none-any.whl"
CONTENT = b"the wheel"
PINNED = hashlib.sha256(CONTENT).hexdigest()


def index_with(folder: Path, content: bytes) -> str:
    """An index of files, whose page links to the wheel with the hash in the fragment, as PyPI's does."""
    write(folder / "simple" / "tool" / "index.html", f'<!DOCTYPE html><a href="../../files/{WHEEL}#sha256=0">it</a>')
    write(folder / "files" / WHEEL, "").write_bytes(content)
    return (folder / "simple").as_uri()


def test_the_file_is_found_on_an_index_page(
    package_index: ModuleType, pip_configuration: ModuleType, tmp_path: Path
) -> None:
    pip = pip_configuration.PipConfiguration(index_url=index_with(tmp_path, CONTENT))
    assert package_index.fetch("tool", WHEEL, PINNED, pip) == CONTENT


def test_the_file_is_found_in_a_folder_even_without_an_index(
    package_index: ModuleType, pip_configuration: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / WHEEL).write_bytes(CONTENT)
    pip = pip_configuration.PipConfiguration(no_index=True, find_links=(str(tmp_path),))
    assert package_index.fetch("tool", WHEEL, PINNED, pip) == CONTENT


def test_a_file_with_another_hash_is_refused_and_the_next_index_asked(
    package_index: ModuleType, pip_configuration: ModuleType, tmp_path: Path
) -> None:
    forged, genuine = index_with(tmp_path / "1", b"forged"), index_with(tmp_path / "2", CONTENT)
    both = pip_configuration.PipConfiguration(index_url=forged, extra_index_urls=(genuine,))
    assert package_index.fetch("tool", WHEEL, PINNED, both) == CONTENT
    with pytest.raises(package_index.NotFetchedError, match="another hash"):
        package_index.fetch("tool", WHEEL, PINNED, pip_configuration.PipConfiguration(index_url=forged))


def test_what_no_index_has_is_told_in_one_line_without_passwords(
    package_index: ModuleType, pip_configuration: ModuleType
) -> None:
    # Port 1 of this machine: refused at once.
    pip = pip_configuration.PipConfiguration(index_url="http://me:secret@127.0.0.1:1/simple")
    with pytest.raises(package_index.NotFetchedError) as failure:
        package_index.fetch("tool", WHEEL, PINNED, pip)
    assert "127.0.0.1:1" in str(failure.value)
    assert "secret" not in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.fixture
def checkout(tmp_path: Path, bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with files of its own."""
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv" / "bootstrap.json")
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    write(tmp_path / "uv.lock", "one")
    write(tmp_path / "pyproject.toml", "one")
    write(tmp_path / ".venv" / "bin" / "python", "")
    return tmp_path


def stamp(bootstrap: ModuleType, groups: list[str]) -> None:
    """What a set-up of these groups leaves."""
    content = {"root": str(bootstrap.ROOT), "fingerprint": bootstrap._fingerprint(), "groups": groups}
    bootstrap.STAMP.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("installed", "wanted", "enough"),
    [
        ([], [], True),
        ([], ["local"], True),
        (["local"], ["local"], True),
        (["local"], [], False),
        (["local"], ["local", "test"], False),
    ],
)
def test_what_is_installed_is_enough_when_all_groups_or_the_wanted_ones_are_there(
    installed: list[str], wanted: list[str], enough: bool, checkout: Path, bootstrap: ModuleType
) -> None:
    fingerprint = bootstrap._fingerprint()
    stamp(bootstrap, installed)
    assert bootstrap._is_set_up(frozenset(wanted), fingerprint) == enough


@pytest.mark.parametrize("change", ["uv.lock", "pyproject.toml", ".venv/bin/python", ".venv/bootstrap.json"])
def test_set_up_runs_again_when_the_lock_the_project_or_the_environment_changed(
    change: str, checkout: Path, bootstrap: ModuleType
) -> None:
    stamp(bootstrap, [])
    assert bootstrap._is_set_up(frozenset(), bootstrap._fingerprint())
    if change.endswith("python"):
        (checkout / change).unlink()  # as a link that dangles after an upgrade of the system's Python
    else:
        (checkout / change).write_text("two")
    assert not bootstrap._is_set_up(frozenset(), bootstrap._fingerprint())


def test_set_up_runs_again_in_a_checkout_that_was_moved(
    checkout: Path, bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp(bootstrap, [])
    fingerprint = bootstrap._fingerprint()
    monkeypatch.setattr(bootstrap, "ROOT", checkout / "elsewhere")
    assert not bootstrap._is_set_up(frozenset(), fingerprint)


@pytest.mark.parametrize("home", ["", "relative", "/nonexistent/home"])
def test_without_a_usable_home_uv_keeps_its_cache_in_the_checkout(
    home: str, bootstrap: ModuleType, pip_configuration: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    environment = bootstrap._uv_environment(pip_configuration.PipConfiguration())
    assert environment["UV_CACHE_DIR"] == str(bootstrap.TOOLS / "uv-cache")


def test_with_a_usable_home_uv_keeps_its_cache_where_it_always_does(
    tmp_path: Path, bootstrap: ModuleType, pip_configuration: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert "UV_CACHE_DIR" not in bootstrap._uv_environment(pip_configuration.PipConfiguration())


def test_uv_is_told_pips_certificates_unless_it_has_its_own(
    bootstrap: ModuleType, pip_configuration: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = pip_configuration.PipConfiguration(certificates="/pip.pem")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert bootstrap._uv_environment(pip)["SSL_CERT_FILE"] == "/pip.pem"
    monkeypatch.setenv("SSL_CERT_FILE", "/own.pem")
    assert bootstrap._uv_environment(pip)["SSL_CERT_FILE"] == "/own.pem"

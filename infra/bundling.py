"""Lambda code built during synth, without Docker, with byte code that is valid on Lambda.

CDK's zips carry the date 1980-01-01, so ordinary byte code is stale on arrival and every cold start compiles
everything again (793 ms instead of 92 ms). Here it is *unchecked* byte code of Lambda's Python, naming the files
where they lie on Lambda.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from uv import find_uv_bin

from infra.config import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
PYTHON_VERSION = "3.13"
REQUIREMENTS = ROOT / "layers" / "dependencies" / "requirements.txt"
SHARED = ROOT / "layers" / "seckill" / "python"
FUNCTIONS = ROOT / "functions"
# Lambda's python3.13 is Amazon Linux 2023 with glibc 2.34.
_PLATFORM = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}


def dependencies(architecture: str) -> lambda_.Code:
    """The locked wheels for this architecture, at /opt/python."""
    return _code(
        REQUIREMENTS.parent,
        {"requirements.txt": REQUIREMENTS},
        lambda out: build_dependencies(out, architecture),
        architecture,
    )


def build_dependencies(out: Path, architecture: str) -> None:
    """Fill `out` with what the layer holds."""
    target = out / "python"
    _run(
        *(find_uv_bin(), "pip", "install", "--quiet", "--target", str(target), "--requirement", str(REQUIREMENTS)),
        *("--require-hashes", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy"),
        *("--python", find_python(), "--python-version", PYTHON_VERSION),
        *("--python-platform", _PLATFORM[architecture]),
    )
    # What differs between machines and serves nobody on Lambda.
    shutil.rmtree(target / "bin", ignore_errors=True)
    for pattern in (".lock", "*.dist-info/RECORD", "*.dist-info/direct_url.json"):
        for leftover in target.glob(pattern):
            leftover.unlink()
    _compile(out, "/opt")


def shared_code() -> lambda_.Code:
    """layers/seckill/python, at /opt/python."""
    files = dict(_sources(SHARED, ""))

    def build(out: Path) -> None:
        _copy(files, out / "python")
        _compile(out, "/opt")

    return _code(SHARED, files, build)


def function_code(name: str) -> lambda_.Code:
    """functions/<name>/ at that same path, so that the handler is
    `functions.<name>.handler.lambda_handler` everywhere."""
    files = {"functions/__init__.py": FUNCTIONS / "__init__.py"}
    files.update(_sources(FUNCTIONS / name, f"functions/{name}/"))

    def build(out: Path) -> None:
        _copy(files, out)
        _compile(out, "/var/task")

    return _code(FUNCTIONS / name, files, build)


@cache
def find_python() -> str:
    """The interpreter of Lambda's version, from PATH, pyenv or uv. Raises ConfigurationError if there is none."""
    for candidate in _pythons():
        try:
            done = subprocess.run(  # noqa: S603
                [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                timeout=20,  # an interpreter starts in a fraction of a second
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.strip() == PYTHON_VERSION:
            return candidate
    raise ConfigurationError(
        f"Python {PYTHON_VERSION}, whose byte code the layers carry, was not found on PATH, in pyenv or among uv's: "
        f"install it, for instance by `.venv/bin/uv python install --no-bin {PYTHON_VERSION}`."
    )


def _pythons() -> Iterator[str]:
    on_path = shutil.which(f"python{PYTHON_VERSION}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))  # noqa: PTH111 - raises nothing without a home
    yield from map(str, sorted(pyenv.glob(f"versions/{PYTHON_VERSION}.*/bin/python{PYTHON_VERSION}")))
    found = subprocess.run(  # noqa: S603
        [find_uv_bin(), "python", "find", "--no-python-downloads", PYTHON_VERSION],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if found.returncode == 0:
        yield found.stdout.strip()


@jsii.implements(ILocalBundling)
class _Local:
    """Calls `build` instead of a container."""

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, *_args: object, **_kwargs: object) -> bool:
        self._build(Path(output_dir))
        return True


def _code(
    source: Path, files: Mapping[str, Path], build: Callable[[Path], None], architecture: str = ""
) -> lambda_.Code:
    return lambda_.Code.from_asset(
        str(source),
        asset_hash_type=AssetHashType.CUSTOM,
        asset_hash=inputs_hash(files, architecture),
        bundling=BundlingOptions(image=DockerImage.from_registry("never-used"), local=_Local(build)),
    )


def inputs_hash(files: Mapping[str, Path], architecture: str) -> str:
    """Of the inputs, not of the result: the same on every machine, whatever its Python's patch version or its clock."""
    digest = hashlib.sha256()
    recipe = Path(__file__).read_bytes()
    for part in (recipe, PYTHON_VERSION.encode(), architecture.encode(), *_contents(files)):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def _contents(files: Mapping[str, Path]) -> Iterable[bytes]:
    for name in sorted(files):
        yield name.encode()
        yield files[name].read_bytes()


def _sources(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield prefix + path.relative_to(folder).as_posix(), path


def _copy(files: Mapping[str, Path], target: Path) -> None:
    for name, path in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)


def _compile(out: Path, on_lambda: str) -> None:
    # -s and -p: a traceback names the file where it lies on Lambda, and the result does not depend on the build folder.
    _run(
        *(find_python(), "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(out), "-p", on_lambda, str(out)),
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)  # noqa: S603 - five minutes: a slow registry, never a hang

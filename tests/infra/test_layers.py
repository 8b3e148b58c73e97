"""The layers and the functions' code: what they hold, their byte code, and a hash that only the inputs change."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from infra import bundling
from infra.bundling import PYTHON_VERSION, REQUIREMENTS
from infra.config import ConfigurationError
from tests.infra.artefacts import ROOT, Artefacts
from tests.infra.deployment import Deployment

ELF_MACHINES = {"arm64": 183, "x86_64": 62}
# Of the 250 MB that Lambda unzips at most; boto3 alone would be some 25 MB.
LARGEST_MB = 25
IN_DEPENDENCIES = {
    *("aws_lambda_powertools", "hiredis", "jmespath", "pymysql", "redis", "typing_extensions.py", "uuid6"),
}


def test_the_layers_hold_the_locked_dependencies_and_the_shared_code_and_no_boto3(artefacts: Artefacts) -> None:
    names = {
        entry.name
        for entry in (artefacts.opt / "python").iterdir()
        if not entry.name.endswith(".dist-info") and entry.name != "__pycache__"
    }
    assert names == IN_DEPENDENCIES | {"seckill"}
    assert {entry.name for entry in artefacts.opt.iterdir()} == {"python"}


def test_the_layers_stay_small(artefacts: Artefacts) -> None:
    size = sum(file.stat().st_size for file in artefacts.opt.rglob("*") if file.is_file())
    assert size < LARGEST_MB * 1_000_000


def test_a_function_holds_its_own_code_only(artefacts: Artefacts) -> None:
    for name, task in artefacts.tasks.items():
        assert {entry.name for entry in task.iterdir()} == {"functions"}
        inside = {entry.name for entry in (task / "functions").iterdir()} - {"__pycache__"}
        assert inside == {"__init__.py", name}


def test_lua_and_sql_travel_with_the_shared_code(artefacts: Artefacts) -> None:
    shared = ROOT / "layers" / "seckill" / "python"
    wanted = {str(path.relative_to(shared)) for path in shared.rglob("*") if path.suffix in {".lua", ".sql"}}
    assert wanted
    assert all((artefacts.opt / "python" / name).is_file() for name in wanted)


def test_every_module_has_unchecked_byte_code_of_lambdas_python(artefacts: Artefacts) -> None:
    magic = subprocess.run(
        [artefacts.python, "-c", "import importlib.util, sys; sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER)"],
        capture_output=True,
        check=True,
    ).stdout
    for root in (artefacts.opt, *artefacts.tasks.values()):
        for source in root.rglob("*.py"):
            cached = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
            header = cached.read_bytes()[:8]
            # PEP 552: flags 0b01 means "hash-based, never checked against the source".
            assert header == magic + struct.pack("<I", 0b01), source


# Reads a compiled file as the interpreter that made it does, and says which source it names.
NAMED_SOURCE = """
import marshal, sys
for cached in sys.stdin.read().split():
    with open(cached, "rb") as file:
        print(marshal.loads(file.read()[16:]).co_filename)
"""


def test_the_byte_code_names_the_sources_where_they_lie_on_lambda(artefacts: Artefacts) -> None:
    for root, on_lambda in ((artefacts.opt, "/opt"), *((task, "/var/task") for task in artefacts.tasks.values())):
        sources = sorted(root.rglob("*.py"))
        compiled = [str(source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc") for source in sources]
        named = subprocess.run(
            [artefacts.python, "-c", NAMED_SOURCE],
            input="\n".join(compiled),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert named == [f"{on_lambda}/{source.relative_to(root)}" for source in sources]


@pytest.mark.parametrize("architecture", ELF_MACHINES)
def test_every_compiled_file_is_of_the_architecture(tmp_path: Path, architecture: str, artefacts: Artefacts) -> None:
    folder = tmp_path / architecture
    bundling.build_dependencies(folder, architecture)
    compiled = list(folder.rglob("*.so"))
    assert compiled, "hiredis comes compiled"
    for file in compiled:
        assert file.read_bytes()[:4] == b"\x7fELF"
        assert struct.unpack("<H", file.read_bytes()[18:20])[0] == ELF_MACHINES[architecture], file


def test_the_committed_requirements_are_the_locked_ones() -> None:
    exported = subprocess.run(
        [
            *(find_uv_bin(), "export", "--quiet", "--frozen", "--no-default-groups", "--no-emit-project"),
            *("--no-header", "--no-annotate"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert REQUIREMENTS.read_text() == exported, "run: make layers/dependencies/requirements.txt"


def test_the_hash_is_of_the_inputs(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("a = 1\n")
    shutil.copy(one, other)
    os.utime(other, (1, 1))
    hashed = bundling.inputs_hash({"a.py": one}, "arm64")
    assert bundling.inputs_hash({"a.py": other}, "arm64") == hashed, "neither place nor time is an input"
    assert bundling.inputs_hash({"a.py": one}, "x86_64") != hashed
    assert bundling.inputs_hash({"b.py": one}, "arm64") != hashed
    other.write_text("a = 2\n")
    assert bundling.inputs_hash({"a.py": other}, "arm64") != hashed


def test_only_the_dependencies_depend_on_the_architecture(deployments: Any) -> None:
    def assets(deployment: Deployment) -> tuple[set[str], set[str]]:
        layers = {r.properties["Content"]["S3Key"] for r in deployment.resources("AWS::Lambda::LayerVersion")}
        functions = {
            deployment.function(name).properties["Code"]["S3Key"]
            for name in ("reserve", "land_order", "reconcile", "sale_admin")
        }
        return layers, functions

    arm_layers, arm_functions = assets(deployments("prod"))
    x86_layers, x86_functions = assets(deployments("prod-aurora-cluster-x86"))
    assert arm_functions == x86_functions
    assert len(arm_layers & x86_layers) == 1


def test_without_python_3_13_synth_stops_with_one_sentence(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": os.defpath,
        "PYENV_ROOT": str(tmp_path),
        "CDK_OUTDIR": str(tmp_path / "out"),
    }
    if shutil.which(f"python{PYTHON_VERSION}", path=os.defpath):
        pytest.skip("the system's own Python is 3.13")
    done = subprocess.run(
        [sys.executable, "-m", "infra.app"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("Python 3.13, whose byte code the layers carry, was not found")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_python_that_is_not_3_13_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_pythons", lambda: iter([sys.executable, "/nowhere/python3.13"]))
    if sys.version_info[:2] == (3, 13):
        pytest.skip("the tests themselves run on 3.13")
    with pytest.raises(ConfigurationError, match="uv python install --no-bin"):
        bundling.find_python.__wrapped__()  # without its cache


def test_a_user_without_a_home_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    assert all(Path(python).name.startswith("python3") for python in bundling._pythons())


def test_the_cdk_is_not_needed_to_import_the_product() -> None:
    assert importlib.util.find_spec("aws_cdk") is not None  # or these tests would have been skipped
    script = "import sys, functions.reserve.handler; assert 'aws_cdk' not in sys.modules and 'infra' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)

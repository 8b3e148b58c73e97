"""The CDK's command line: the lock file's Node runs it, also on a machine that has none."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv"


@pytest.fixture
def without_node(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with make, a shell and Python, but neither node nor npx."""
    for name in ("make", "sh", "env", "python3"):
        found = shutil.which(name)
        assert found, name
        (tmp_path / name).symlink_to(found)
    return {"PATH": str(tmp_path), "HOME": str(tmp_path)}


@pytest.mark.parametrize("target", ["bootstrap", "deploy", "destroy"])
def test_the_cdks_command_line_runs_on_the_locked_node(target: str, without_node: dict[str, str]) -> None:
    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=ROOT, env=without_node, capture_output=True, text=True, check=True
        ).stdout.strip()

    recipe = run("make", "--dry-run", target).splitlines()[-1]
    npx, package, arguments = recipe.partition("aws-cdk@2 ")
    assert package, recipe
    assert arguments.split()[0] == target
    # What the first line of the CDK's program finds, asked without the package registry.
    found = run("sh", "-c", f"{npx} --call 'env node --print process.execPath'")
    assert Path(found).is_relative_to(VENV)

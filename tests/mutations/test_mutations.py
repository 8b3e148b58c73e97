"""Each rule that is code is taken out in a copy of the shared code, and the tests that guard it must turn red."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.mutations import MUTATIONS, Change, Mutation

ROOT = Path(__file__).parents[2]
SHARED_CODE = ROOT / "layers/seckill/python"
# Three servers start and a test or two run: some 10 s, more on a busy machine.
KILL_SECONDS = 120
SOME_TESTS_FAILED = 1  # pytest's exit status; anything else means that the mutated code was not tested at all


def changed(text: str, change: Change) -> str:
    """The text with the change made; the code it was written for must still be there."""
    assert text.count(change.old) == 1, f"{change.file}: found {text.count(change.old)} times: {change.old!r}"
    return text.replace(change.old, change.new)


@pytest.mark.timeout(KILL_SECONDS + 30)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_a_rule_taken_out_turns_a_test_red(mutation: Mutation, tmp_path: Path) -> None:
    copy = tmp_path / "python"
    shutil.copytree(SHARED_CODE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for change in mutation.changes:
        file = copy / "seckill" / change.file
        file.write_text(changed(file.read_text(), change))

    # Servers of its own: a mutated schema must not stay behind in anybody's database.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SECKILL_TEST_", "PYTEST_"))
    }
    environment["PYTHONPATH"] = str(copy)
    killing = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.killers],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=KILL_SECONDS, check=False,
    )  # fmt: skip
    told = f"{killing.stdout[-3000:]}{killing.stderr[-2000:]}"
    assert killing.returncode == SOME_TESTS_FAILED, f"{mutation.name} survived:\n{told}"
    assert re.search(r"\b1 failed\b", killing.stdout), f"{mutation.name} broke the set-up, no test judged it:\n{told}"

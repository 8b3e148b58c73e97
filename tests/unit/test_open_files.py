"""The limit of open files is raised as far as it goes, and never lowered."""

import subprocess
import sys

import pytest

from local.state import CHECKOUT

ASK = """
import resource, sys
from local.open_files import raise_open_files_limit
print(raise_open_files_limit(int(sys.argv[1])), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("wanted", "may_be_open", "soft_limit_after"), [(512, 512, 512), (5000, 1024, 1024), (100, 100, 256)]
)
def test_the_soft_limit_rises_up_to_the_hard_one(wanted: int, may_be_open: int, soft_limit_after: int) -> None:
    limits = "ulimit -S -n 256 && ulimit -H -n 1024"
    asked = subprocess.run(
        ["/bin/sh", "-c", f'{limits} && exec "$@"', "sh", sys.executable, "-c", ASK, str(wanted)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(number) for number in asked.stdout.split()] == [may_be_open, soft_limit_after, 1024]

"""The import budget: what a cold container must not pay for before it answers its first request."""

import subprocess
import sys

import pytest

# boto3 with its session costs some 110 ms and is for winners only; pydantic 65 ms; the X-Ray SDK 200 ms. (Powertools
# loads the bare package `botocore` for its user agent, which costs nothing.)
TOO_DEAR = {"boto3", "botocore.session", "botocore.client", "pydantic", "aws_xray_sdk", "requests"}
# What the command line and the tests have, but no function on Lambda.
NOT_DEPLOYED = {"local", "drill", "cli", "moto", "pytest", "aiohttp", "granian"}


def loaded_by(module: str) -> set[str]:
    """The modules in a fresh interpreter that has imported this one and nothing else."""
    program = f"import {module}, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    ["functions.reserve.handler", "functions.land_order.handler", "functions.sale_admin.handler"],
)
def test_a_functions_import_loads_nothing_dear_and_nothing_undeployed(module: str) -> None:
    loaded = loaded_by(module)
    assert {module, "seckill.adapters.redis", "redis", "pymysql"} <= loaded, "the subprocess imported the function"
    assert loaded & TOO_DEAR == set()
    assert loaded & NOT_DEPLOYED == set()

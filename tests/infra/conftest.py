"""One synth for each configuration, shared by every test of the run; Lambda code is built once."""

import functools
import platform
from typing import Any

import pytest

import infra  # names the locked Node before the CDK looks for one

assert infra.__doc__
# `make demo` needs neither Node nor the CDK: without the dependency group `infra` these tests are skipped by name.
pytest.importorskip("aws_cdk", reason="the dependency group `infra` is not installed")

from infra.config import ConfigurationError  # noqa: E402 - the CDK first
from tests.infra.artefacts import Artefacts, build_artefacts  # noqa: E402
from tests.infra.deployment import CONFIGURATIONS, Deployment  # noqa: E402

# Only what this machine can run is run; the other architecture's compiled files are looked at.
RUNNABLE = {"x86_64": "x86_64", "aarch64": "arm64"}


@pytest.fixture(scope="session")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @functools.cache
    def deployment(name: str) -> Deployment:
        return Deployment(name, tmp_path_factory.mktemp("cdk") / "out")

    return deployment


@pytest.fixture(scope="session", params=CONFIGURATIONS)
def deployment(request: pytest.FixtureRequest, deployments: Any) -> Deployment:
    """Each configuration in turn."""
    found: Deployment = deployments(request.param)
    return found


@pytest.fixture(scope="session")
def dev(deployments: Any) -> Deployment:
    found: Deployment = deployments("dev")
    return found


@pytest.fixture(scope="session")
def prod(deployments: Any) -> Deployment:
    found: Deployment = deployments("prod")
    return found


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    """The built layers and functions, for this machine's processor."""
    try:
        return build_artefacts(tmp_path_factory.mktemp("artefacts"), RUNNABLE[platform.machine()])
    except ConfigurationError as error:
        pytest.skip(str(error))

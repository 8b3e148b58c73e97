"""One synth for each configuration, shared by every test of the run; Lambda code is not built for the
template tests."""

import functools
from typing import Any

import pytest

# `make demo` needs neither Node nor the CDK: without the dependency group `infra` these tests are skipped by name.
pytest.importorskip("aws_cdk", reason="the dependency group `infra` is not installed")

from tests.infra.deployment import CONFIGURATIONS, Deployment


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

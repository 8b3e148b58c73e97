"""The faults' own market."""

from collections.abc import Iterator

import pytest

from local.servers import Servers
from tests.faults.market import Market, open_market


@pytest.fixture(scope="session")
def market(servers: Servers) -> Iterator[Market]:
    """One for all fault runs of this process."""
    with open_market(servers) as opened:
        yield opened

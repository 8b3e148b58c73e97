"""The market of the fault runs, in which the state machine plays, too."""

from collections.abc import Iterator

import pytest

from local.servers import Servers
from tests.faults.market import Market, open_market


@pytest.fixture(scope="module")
def market(servers: Servers) -> Iterator[Market]:
    with open_market(servers) as opened:
        yield opened

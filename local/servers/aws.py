"""moto's server: SQS, SNS and the rest of AWS that the product calls."""

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import ClassVar

from local.servers.processes import Server

# A proxy that the shell names is not for this machine.
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AwsServer(Server):
    """Speaks the AWS APIs at `url`; keeps everything in memory, so a restart forgets its queues."""

    name: ClassVar[str] = "aws"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        try:
            with _WITHOUT_PROXY.open(f"{self.url}/moto-api/", timeout=1) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

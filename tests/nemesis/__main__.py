"""The long run: `python -m tests.nemesis --seconds 120 --seed 7`; exit status 1 when a promise is broken.

The requests go to build/nemesis/history-<seed>.jsonl, what was broken to events-<seed>.jsonl beside it.
"""

import argparse
import json
import random
import sys
from dataclasses import asdict

from local.state import CHECKOUT
from tests.nemesis.play import Report, play
from tests.nemesis.report import told


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    arguments.add_argument("--seconds", type=float, default=120)
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = arguments.parse_args()
    print(f"nemesis: {chosen.seconds:.0f} s with seed {chosen.seed}", flush=True)
    report = play(chosen.seconds, chosen.seed, patient=True)
    keep_history(report)
    print(told(report))
    return 1 if report.problems else 0


def keep_history(report: Report) -> None:
    directory = CHECKOUT / "build" / "nemesis"
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in (("history", report.history), ("events", report.events)):
        path = directory / f"{name}-{report.seed}.jsonl"
        path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())

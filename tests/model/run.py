"""The model from the command line; exit code 1 when a promise is broken or a mutation survives.

without options: the scenarios that CI searches, every mutation, the article's design
"""

import argparse
import sys

from tests.model.article import RUNS
from tests.model.mutations import MUTATIONS, Mutation
from tests.model.scenarios import FOR_CI, FULL, Scenario


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.model.run", description=__doc__)
    arguments.add_argument("--full", action="store_true", help="search the large scenarios instead of CI's")
    arguments.add_argument("--only", metavar="WORD", default="", help="only scenarios and mutations that mention WORD")
    arguments.add_argument("--trace", metavar="MUTATION", help="print how a mutation (O4, say) breaks its promise")
    chosen = arguments.parse_args()
    if chosen.trace:
        return show_trace(chosen.trace)
    scenarios = [one for one in (FULL if chosen.full else FOR_CI) if chosen.only in str(one)]
    mutations = [one for one in MUTATIONS if chosen.only in one.name]
    sound = search_scenarios(scenarios)
    killed = search_mutations(mutations)
    if not chosen.only:
        search_article()
    return 0 if sound and killed else 1


def search_scenarios(scenarios: list[Scenario]) -> bool:
    """The rules as they are: nothing may break."""
    reports = []
    for scenario in scenarios:
        report = scenario.search()
        reports.append(report)
        print(f"{scenario}: {report}", flush=True)
        for promise in report.traces:
            print(f"  {promise}\n{report.trace(promise)}")
    states, seconds = sum(report.states for report in reports), sum(report.seconds for report in reports)
    print(f"{len(reports)} scenarios, {states:,} states, {seconds:.0f} s\n", flush=True)
    return all(report.exhaustive and not report.traces for report in reports)


def search_mutations(mutations: list[Mutation]) -> bool:
    """Rules left out: each must break the promise it is there for."""
    killed = 0
    for mutation in mutations:
        report = mutation.search()
        trace = report.traces.get(mutation.breaks)
        killed += trace is not None
        fate = "SURVIVES" if trace is None else f"breaks {mutation.breaks} in {len(trace)} steps"
        print(f"{mutation}: {fate}", flush=True)
    print(f"{killed} of {len(mutations)} mutations killed\n", flush=True)
    return killed == len(mutations)


def search_article() -> None:
    """The design this product started from, for comparison."""
    for name, run in RUNS.items():
        print(f"the article's design, {name}: {run.search()}")


def show_trace(name: str) -> int:
    for mutation in MUTATIONS:
        if mutation.name == name:
            print(f"{mutation}: {mutation.breaks} is broken by")
            print(mutation.search().trace(mutation.breaks))
            return 0
    print(f"no mutation is called {name!r}; there are: {', '.join(one.name for one in MUTATIONS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

"""The protocol holds in every reachable state, and every rule of it is needed.

`python -m tests.model.run --trace O4` prints how a mutation breaks its promise; `--full` searches the large scenarios.
"""

from collections.abc import Callable
from dataclasses import fields

import pytest

from tests.model.article import RUNS
from tests.model.mutations import MUTATIONS, Mutation
from tests.model.rules import Rules
from tests.model.scenarios import FOR_CI, Scenario

Record = Callable[[str, object], None]
GUARDED_TWICE = [mutation for mutation in MUTATIONS if len(mutation.rules) > 1]


@pytest.mark.parametrize("scenario", FOR_CI, ids=str)
def test_no_promise_is_broken_in_any_reachable_state(scenario: Scenario, record_property: Record) -> None:
    report = scenario.search()

    for promise in report.traces:
        print(f"{promise} is broken by\n{report.trace(promise)}")
    assert report.exhaustive
    assert not report.traces
    record_property("model states", report.states)
    record_property("model seconds", report.seconds)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_protocol_without_the_rule_breaks_its_promise(mutation: Mutation, record_property: Record) -> None:
    report = mutation.search()

    assert mutation.breaks in report.traces, f"{mutation} survives: {report}"
    record_property("mutation killed", mutation.name)


@pytest.mark.parametrize("mutation", GUARDED_TWICE, ids=lambda mutation: mutation.name)
def test_where_several_rules_guard_a_promise_each_alone_is_enough(mutation: Mutation) -> None:
    for kept in mutation.rules:
        others = [rule for rule in mutation.rules if rule != kept]

        report = mutation.run.without(*others).search(max_states=200_000)

        assert report.exhaustive
        assert mutation.breaks not in report.traces, f"with {kept} alone:\n{report.trace(mutation.breaks)}"


def test_every_rule_is_left_out_by_a_mutation() -> None:
    assert {rule for mutation in MUTATIONS for rule in mutation.rules} == {rule.name for rule in fields(Rules)}


def test_every_observation_of_the_protocol_is_a_mutation() -> None:
    assert {f"O{number}" for number in range(1, 15)} <= {mutation.name for mutation in MUTATIONS}


@pytest.mark.parametrize(
    ("run", "failure", "steps"),
    [
        ("a crash", "lost unit", 1),
        ("an ambiguous insert", "over-promise", 6),
        ("a fail-over", "over-promise", 6),
        ("a double click", "two reservations of one user", 4),
        ("two consumers, order key not unique", "double order", 6),
        ("a consumer and a reconciler, one landing fails", "order and roll-back", 9),
        ("two reconcilers, landings fail", "double give-back", 10),
    ],
)
def test_the_articles_own_fix_fails(run: str, failure: str, steps: int) -> None:
    report = RUNS[run].search()

    assert report.exhaustive
    assert len(report.traces[failure]) == steps


def test_the_articles_own_fix_survives_two_consumers_but_not_a_crash() -> None:
    report = RUNS["two consumers"].search()

    assert set(report.traces) == {"lost unit"}

"""Every rule left out, the promise that breaks, and the smallest run that shows it.

O1 to O14 are the names of docs/protocol.md, section 7.
"""

from dataclasses import dataclass

from tests.model.scenarios import OLD_REDIS, Scenario
from tests.model.search import Report


@dataclass(frozen=True)
class Mutation:
    """A protocol without some rules.

    More than one rule is named where several guard the same promise: then each of them alone must be enough.
    """

    name: str
    rules: tuple[str, ...]
    breaks: str
    run: Scenario

    def __str__(self) -> str:
        return f"{self.name} (without {', '.join(self.rules)})"

    def search(self) -> Report:
        """Search until the promise is broken."""
        # Some mutations have endlessly many states (stock grows for ever); the counterexample comes much sooner.
        return self.run.without(*self.rules).search(until=frozenset({self.breaks}), max_states=200_000)


def when(*users: int, **faults: int) -> Scenario:
    """The smallest run that shows a mutation: who calls, and which faults may happen."""
    return Scenario(users, **faults)  # type: ignore[arg-type]  # only fields that are numbers are given


MIXED = Scenario((0, 1), total=2, mixed_quantities=(2, 1), fail_overs=1)
OLD = Scenario((0, 1), rebuilds=1, redis_at_start=OLD_REDIS)
NO_FENCE = ("abandon_keeps_rows", "row_read_first", "tombstone_of_current_epoch")

MUTATIONS = (
    Mutation("O1", ("abandon_keeps_rows",), "P2", when(0, 0, ambiguous_inserts=1)),
    Mutation("O2", NO_FENCE, "P2", when(0, 0, rebuilds=1)),
    Mutation("O3", ("rebuild_one_select",), "P3", when(0, 1, rebuilds=1)),
    Mutation("O4", ("tombstone_carries_ticket",), "P3", when(0, 1, 2, fail_overs=1)),
    Mutation("O5", ("poisoned_not_released",), "P6", when(0, 1, fail_overs=1)),
    Mutation("O5 without cap", ("poisoned_not_released", "insert_within_cap"), "P3", when(0, 1, 2, fail_overs=1)),
    Mutation("O6", ("quantity_of_sale",), "P3", MIXED),
    Mutation("O7", ("user_unique",), "P5", when(0, 1, 0, total=2, fail_overs=1)),
    Mutation("O8", ("rebuild_discards_unknown",), "I3", when(0, rebuilds=2)),
    Mutation("O8 without cap", ("rebuild_discards_unknown", "insert_within_cap"), "P3", when(0, 1, rebuilds=2)),
    Mutation("O9", ("top_up_by_rebuild",), "I3", when(0, rebuilds=1, top_ups=1)),
    Mutation("O9 without cap", ("top_up_by_rebuild", "insert_within_cap"), "P3", when(0, 1, 2, rebuilds=1, top_ups=1)),
    Mutation("O10", ("abandon_plain_insert",), "P2", when(0, 1, ambiguous_inserts=1, fail_overs=1)),
    Mutation("O11", ("insert_shared_lock",), "P3", when(0, 1, rebuilds=1)),
    Mutation("O12", ("key_is_primary", "row_read_first"), "RETRY", when(0, 0)),
    Mutation("O13", ("release_clears_buyer",), "P7", when(0, roll_backs=1, corruptions=2)),
    Mutation("O14", ("insert_within_cap",), "P3", when(0, 1, corruptions=1)),
    Mutation("no row read first", ("row_read_first",), "RETRY", when(0, 0, rebuilds=1)),
    Mutation("insert without epoch", ("insert_fenced",), "P3", when(0, 1, rebuilds=1)),
    Mutation("tickets not unique", ("ticket_unique",), "P3", when(0, 1, fail_overs=1)),
    Mutation("tombstone above cap", ("tombstone_within_cap",), "P3", when(0, 1, 2, corruptions=2)),
    Mutation("tombstone leaves cap", ("tombstone_extends_cap",), "I1", when(0)),
    Mutation("tombstone of a dead key", ("tombstone_of_current_epoch",), "I1", when(0, rebuilds=1)),
    Mutation("give back on an unknown insert", ("release_after_status_3",), "P6", when(0, ambiguous_inserts=1)),
    Mutation("release without looking for the hold", ("release_checks_hold",), "P6", when(0)),
    Mutation("settle at status 1", ("settle_after_status_2",), "I3", when(0, roll_backs=1)),
    Mutation("land at status 3", ("land_only_status_1",), "P3", when(0, 1, roll_backs=1)),
    Mutation("order and status in two transactions", ("land_one_transaction",), "I0", when(0)),
    Mutation("roll back at status 2", ("roll_back_only_status_1",), "P2", when(0, total=2, roll_backs=1)),
    Mutation("roll-back leaves cap", ("roll_back_extends_cap",), "I1", when(0, roll_backs=1)),
    Mutation("roll-back without notice", ("roll_back_leaves_notice",), "P2", when(0, roll_backs=1)),
    Mutation("rebuild does not look at Redis's epoch", ("rebuild_past_redis",), "P4", OLD),
    Mutation("rebuild leaves cap", ("rebuild_sets_cap",), "I1", when(0, rebuilds=1)),
    Mutation("rebuild reads before its COMMIT", ("rebuild_reads_after_commit",), "I3", when(0, rebuilds=1)),
    Mutation("rebuild reads without a read view", ("rebuild_one_read_view",), "I3", when(0, rebuilds=1)),
    Mutation("rebuild loads no holds", ("rebuild_loads_holds",), "I3", when(0, rebuilds=1, roll_backs=1)),
    Mutation("rebuild forgets who has an order", ("rebuild_loads_landed_buyers",), "P5", when(0, rebuilds=1)),
    Mutation("load of the same epoch", ("load_only_newer",), "I3", when(0, 1, rebuilds=1, duplicated_loads=1)),
    Mutation("load keeps the ticket", ("load_resets_ticket",), "I4", when(0, rebuilds=1)),
    Mutation("audit ignores lost tickets", ("audit_knows_tickets",), "P4", when(0, fail_overs=1)),
)

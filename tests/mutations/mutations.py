"""Rules of docs/protocol.md that are code, each taken out by a small change, and the tests that must then turn red."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One place in layers/seckill/python/seckill: `old` stands there exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """A rule taken out."""

    name: str
    changes: tuple[Change, ...]
    killers: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "abandon changes an existing row",
        (
            Change(
                "sql/abandon.sql",
                "VALUES (%s, %s, %s, %s, %s, %s, 3, 'abandoned', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))",
                "VALUES (%s, %s, %s, %s, %s, %s, 3, 'abandoned', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))\n"
                "ON DUPLICATE KEY UPDATE status = 3",
            ),
        ),
        ("tests/integration/test_causes.py::test_abandon_never_changes_a_row_that_exists",),
    ),
    Mutation(
        "tombstone without its ticket",
        (
            Change(
                "protocol/abandon.py",
                "deduction.quantity, deduction.epoch, deduction.ticket,",
                "deduction.quantity, 0, deduction.ticket,",
            ),
        ),
        (
            "tests/faults/test_o_scenarios.py::test_o4_the_unit_of_a_crashed_winner_whose_ticket_is_taken_is_not_sold_twice",
        ),
    ),
    Mutation(
        "release of a poisoned key",
        (
            Change(
                "protocol/reserve.py",
                'self._count("TicketConflict")\n        if poisoned or',
                "release_quietly(self._redis, deduction.sku_id, deduction.key, deduction.user)\n        if poisoned or",
            ),
        ),
        ("tests/faults/test_o_scenarios.py::test_o5_a_taken_ticket_is_a_poisoned_key_whose_unit_is_not_given_back",),
    ),
    Mutation(
        "no unique live user",
        (
            Change(
                "sql/migrations/0001_the_books.sql",
                "UNIQUE KEY one_live_row_per_user (sku_id, live_user)",
                "KEY one_live_row_per_user (sku_id, live_user)",
            ),
        ),
        ("tests/faults/test_o_scenarios.py::test_o7_a_user_whom_redis_forgot_is_not_promised_a_second_unit",),
    ),
    Mutation(
        "no shared lock in the insert",
        (Change("sql/reserve.sql", "\nLOCK IN SHARE MODE\n", "\n"),),
        ("tests/faults/test_o_scenarios.py::test_o11_an_insert_waits_for_a_rebuild_and_a_rebuild_for_an_insert",),
    ),
    Mutation(
        "remaining and pending read by two statements",
        (
            Change(
                "sql/rebuild.sql",
                "-- name: bump",
                "-- name: pending\n"
                "SELECT COALESCE(SUM(quantity), 0) AS units FROM seckill_pre_deduct WHERE sku_id = %s AND status = 1\n"
                "-- name: bump",
            ),
            Change(
                "protocol/rebuild.py",
                '    unpromised = database.row("rebuild.unpromised", sku_id)\n'
                '    if unpromised is None or unpromised["units"] < 0:',
                '    remaining = database.row("roll_back.remaining", sku_id)\n'
                '    pending = database.row("rebuild.pending", sku_id)\n'
                '    unpromised = {"units": remaining["remaining"] - pending["units"]}\n'
                '    if unpromised["units"] < 0:',
            ),
        ),
        ("tests/faults/test_o_scenarios.py::test_o3_a_landing_after_any_call_of_a_rebuild_does_not_inflate_the_stock",),
    ),
    Mutation(
        "load after an ambiguous commit",
        (Change("protocol/rebuild.py", "continue  # (b): throw it all away", "pass"),),
        ("tests/faults/test_o_scenarios.py::test_o8_a_rebuild_whose_commit_was_not_answered_loads_nothing_of_it",),
    ),
    Mutation(
        "no ROLLBACK after a lock-wait time-out",
        (
            Change(
                "adapters/mysql.py",
                "        except BaseException:\n            self._roll_back()\n            raise",
                "        except BaseException:\n            raise",
            ),
        ),
        (
            "tests/integration/test_land.py::test_while_the_hot_row_is_held_nothing_is_half_committed_and_afterwards_all_land_once",
        ),
    ),
)

"""The gap and its parts."""

from seckill.domain.accounts import LedgerAccounts, SoftTerms, gap_terms, soft_equations

BOOKS = LedgerAccounts(
    total=100,
    remaining=60,
    cap=100,
    epoch=1,
    used=50,
    reserved=10,
    landed=40,
    rolled_back=0,
    ordered=40,
    stale=1,
    landed_without_order=2,
    orders_without_landed=4,
    rolled_back_without_notice=8,
)


def test_the_gap_is_every_open_account_and_what_redis_cannot_explain() -> None:
    seventeen_too_many = SoftTerms(
        stock=67, ticket=50, held_without_row=0, held_rolled_back=0, live_seen=50, rolled_back_later=0, highest_before=0
    )
    terms = gap_terms(BOOKS, soft_equations(BOOKS, seventeen_too_many))
    assert terms == {
        "stale": 1,
        "landed without order": 2,
        "orders without landed": 4,
        "rolled back without notice": 8,
        "difference in I3": 17,
    }

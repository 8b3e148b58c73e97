"""The storm's shoppers are planned, and the same for the same seed."""

from drill.shoppers import RETRY_GAP_SECONDS, plan_shoppers


def test_the_same_seed_gives_the_same_shoppers() -> None:
    assert plan_shoppers(100, 5, 15, seed=7) == plan_shoppers(100, 5, 15, seed=7)
    assert plan_shoppers(100, 5, 15, seed=7) != plan_shoppers(100, 5, 15, seed=8)


def test_all_arrive_within_the_ramp_and_click_within_the_storm() -> None:
    shoppers = plan_shoppers(5200, ramp_seconds=5, storm_seconds=15, seed=1)
    assert len({shopper.user for shopper in shoppers}) == 5200
    assert all(0 <= shopper.arrives_at < 5 for shopper in shoppers)
    # The last first click still leaves room for two retries.
    assert all(shopper.first_click_at + sum(shopper.retry_gaps) < 15 for shopper in shoppers)


def test_many_click_in_the_first_second_and_one_in_ten_double_clicks() -> None:
    shoppers = plan_shoppers(5200, ramp_seconds=5, storm_seconds=15, seed=1)
    assert 0.40 < sum(shopper.first_click_at < 1 for shopper in shoppers) / 5200 < 0.48
    assert 0.08 < sum(shopper.double_clicks for shopper in shoppers) / 5200 < 0.12


def test_three_tries_are_200_to_800_ms_apart() -> None:
    gaps = [gap for shopper in plan_shoppers(500, 5, 15, seed=1) for gap in shopper.retry_gaps]
    assert len(gaps) == 2 * 500
    assert RETRY_GAP_SECONDS == (0.2, 0.8)
    assert 0.2 <= min(gaps) < 0.25
    assert 0.75 < max(gaps) <= 0.8

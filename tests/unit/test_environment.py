"""What a function is told by its environment: filled into its settings, or refused by the variable's name."""

import pytest

from functions.reconcile.settings import Settings
from seckill.adapters.environment import from_environment


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of a reconcile function, without what has a default."""
    for name in ("DATABASE_URL", "REDIS_URL", "LANDING_QUEUE_URL", "LANDING_DLQ_URL"):
        monkeypatch.setenv(name, f"of {name}")
    for name in ("STALE_AFTER_SECONDS", "LANDING_ATTEMPTS", "NOTICE_TOPIC_ARN"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_settings_are_the_variables_of_the_same_names(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("STALE_AFTER_SECONDS", "1")
    environment.setenv("LANDING_ATTEMPTS", "")  # as not set
    settings = from_environment(Settings)
    assert (settings.database_url, settings.stale_after_seconds) == ("of DATABASE_URL", 1)
    assert (settings.landing_attempts, settings.notice_topic_arn) == (3, "")


@pytest.mark.parametrize("name", ["STALE_AFTER_SECONDS", "LANDING_ATTEMPTS"])
@pytest.mark.parametrize(
    "text", ["0", "00", "-1", "+1", "1.5", "1_0", " 1", "1\n", "x", "١٢٠", "１２０", "²", "9" * 5_000]
)
def test_a_number_that_is_none_or_below_one_is_refused_by_its_name(
    environment: pytest.MonkeyPatch, name: str, text: str
) -> None:
    environment.setenv(name, text)
    with pytest.raises(ValueError, match=f"wrong environment: {name} is not a whole number from 1"):
        from_environment(Settings)


def test_all_that_is_wrong_is_named_at_once(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("DATABASE_URL")
    environment.setenv("STALE_AFTER_SECONDS", "0")
    with pytest.raises(ValueError, match="DATABASE_URL is not set, STALE_AFTER_SECONDS is not"):
        from_environment(Settings)

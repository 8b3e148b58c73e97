"""What the clients' own log says."""

from pathlib import Path

from drill.answers import Answer, AnswerLog, latency_ms, percentile, promised_keys, read_answers, requests_per_second


def answer(status: int, key: str | None = None, *, user: str = "u", start: float = 0.0, latency: float = 0.1) -> Answer:
    return Answer(user=user, attempt=1, status=status, code="", key=key, start=start, latency=latency)


def test_a_promise_is_the_key_of_a_2xx_answer() -> None:
    told = [answer(202, "a"), answer(200, "a"), answer(200, "b", user="v"), answer(503, "c"), answer(409), answer(0)]
    assert promised_keys(told) == {"a": "u", "b": "v"}


def test_the_log_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    log = AnswerLog(tmp_path / "made" / "here.jsonl")
    log.write(answer(202, "a"))
    log.flush()
    assert read_answers(log.path) == [answer(202, "a")]
    log.close()


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 99, 100)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 1) == 7.0
    assert percentile([], 99) == 0.0


def test_latency_is_in_milliseconds() -> None:
    assert latency_ms([answer(202, latency=0.25)]) == {"p50": 250, "p90": 250, "p95": 250, "p99": 250, "max": 250}
    assert latency_ms([])["p99"] == 0


def test_requests_per_second_are_counted_from_the_first_click_to_the_last_answer() -> None:
    assert requests_per_second([answer(409, start=1.0, latency=0.5), answer(409, start=1.5, latency=0.5)]) == 2.0
    assert requests_per_second([]) == 0.0

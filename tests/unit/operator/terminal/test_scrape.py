"""What counts of a pod's /metrics, and rates as Prometheus computes them."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_operator.terminal.values.load import OTHER, load, quantile, rates
from graphpod_operator.terminal.values.scrape import KV, REPLAYS, SCRAPE_BYTES, SERIES, ScrapeInvalid, scrape
from graphpod_policy.metrics import BY_NAME
from tests.unit.operator.terminal.expositions import exposition


def test_labels_that_are_not_needed_are_summed_over() -> None:
    body = exposition(replays={"decode": 7}) + (
        b'graphpod_graph_replays_total{phase="decode",policy="Breakable",backend="Recorder"} 5\n'
    )
    assert scrape(body, 1.0).counters[REPLAYS, "decode"] == 12


def test_a_pod_that_still_loads_has_no_gauges_and_counts() -> None:
    lines = exposition().decode().splitlines()
    body = "\n".join(line for line in lines if "time_to_first" in line).encode()
    assert scrape(body, 1.0).gauges == {}
    found = load([(None, scrape(body, 1.0))])
    assert found is not None
    assert (found.running, found.kv, found.replays) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no series of a graphpod engine"),
        (b"<html>503</html>", "no series of a graphpod engine"),
        (exposition(running=-1), "impossible"),
        (exposition(running=math.nan), "impossible"),
        (exposition(replays={"decode": math.inf}), "impossible"),
        (exposition(kv=7), "more than 1"),
        (exposition(drafts=(10, 11)), "more draft tokens were right than were verified"),
        (exposition() + b"graphpod_requests_running many\n", "cannot be read"),
        (exposition() + b"graphpod_requests_running 1" + b"0" * 900 + b"\n", "cannot be read"),
        (exposition() + b"graphpod_graph_replays_total{phase=decode} 1\n", "cannot be read"),
        (exposition() + b'graphpod_graph_replays_total{phase="' + b"x" * 2000 + b'"} 1\n', "line of"),
        (exposition() + b"graphpod_requests_waiting 1\n" * (SERIES + 1), "more than 2000 series"),
        (b"#" * (SCRAPE_BYTES + 1), "more than 1024 KiB"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)
def test_a_scrape_that_no_engine_can_give_counts_for_nothing(body: bytes, said: str) -> None:
    with pytest.raises(ScrapeInvalid, match=said):
        scrape(body, 1.0)


@given(st.binary(max_size=200), st.text(alphabet='{}",=\\ 1e9.#_a', max_size=60))
@example(b"", '{le="1",} 1 1e999')
def test_no_bytes_raise_anything_else(noise: bytes, line: str) -> None:
    for body in (noise, exposition() + b"\n" + noise, exposition() + f"{REPLAYS}{line}\n".encode()):
        try:
            scrape(body, 1.0)
        except ScrapeInvalid:
            continue


def test_the_share_of_right_drafts_is_that_of_the_time_between_two_scrapes() -> None:
    before, now = scrape(exposition(drafts=(100, 80)), 0.0), scrape(exposition(drafts=(300, 120)), 10.0)
    one, none = (load([pair]).as_dict() for pair in ((before, now), (now, replace(now, at=20.0))))
    assert (one["draftsAcceptedRatio"], none["draftsAcceptedRatio"]) == (0.2, None)


def test_the_series_are_metrics_of_the_engine() -> None:
    assert {REPLAYS, KV} <= BY_NAME.keys()
    names = {name for name, _ in scrape(exposition(), 0.0).counters}
    assert {name.removesuffix("_bucket") for name in names} <= BY_NAME.keys()


def test_a_counter_that_went_down_counts_from_zero() -> None:
    before = scrape(exposition(replays={"prefill": 100, "decode": 100}), 10.0)
    now = scrape(exposition(replays={"prefill": 140, "decode": 20}), 20.0)
    found = rates(before, now)
    assert found is not None
    assert (found[REPLAYS, "prefill"], found[REPLAYS, "decode"]) == (4.0, 2.0)


def test_two_scrapes_of_one_moment_give_no_rate() -> None:
    one = scrape(exposition(), 10.0)
    found = load([(one, one)])
    assert found is not None
    assert found.replays is None


def test_pods_are_added_up_and_the_fullest_cache_counts() -> None:
    before = scrape(exposition(), 0.0)
    first = scrape(exposition(replays={"decode": 10}, running=1, kv=0.2), 10.0)
    second = scrape(exposition(replays={"decode": 30}, running=2, kv=0.6), 5.0)
    new = scrape(exposition(replays={"decode": 5000}, waiting=4), 5.0)
    found = load([(before, first), (before, second), (None, new)])
    assert found is not None
    assert found.replays == {"prefill": 0.0, "decode": 7.0}
    assert (found.running, found.waiting, found.kv) == (3, 4, 0.6)


def test_fallbacks_are_by_reason_the_most_frequent_first_and_unknown_words_are_one() -> None:
    counted = {"NotCaptured": 1, "PaddingGate": 3, "\x1b[2J": 1, "Invented": 1, "Disabled": 0}
    lines = exposition(fallbacks=dict.fromkeys(counted, 0))
    found = load([(scrape(lines, 0.0), scrape(exposition(fallbacks=counted), 10.0))])
    assert found is not None
    assert found.fallbacks == {"PaddingGate": 0.3, OTHER: 0.2, "NotCaptured": 0.1}
    assert list(found.fallbacks) == ["PaddingGate", OTHER, "NotCaptured"]


def test_padding_is_a_share_of_the_rows_and_unknown_without_any() -> None:
    none = scrape(exposition(), 0.0)
    found = load([(none, scrape(exposition(tokens={"real": 30, "padding": 10}), 5.0))])
    idle = load([(none, scrape(exposition(), 5.0))])
    assert found is not None
    assert idle is not None
    assert (found.padding, idle.padding, idle.ttft) == (0.25, None, None)


@pytest.mark.parametrize(
    ("buckets", "seconds"),
    [
        ([(0.1, 0.0), (0.5, 10.0), (math.inf, 10.0)], 0.48),
        ([(0.1, 10.0), (math.inf, 10.0)], 0.095),
        ([(0.1, 1.0), (math.inf, 10.0)], 0.1),
        ([(0.1, 0.0), (math.inf, 0.0)], None),
        ([(0.1, 5.0)], None),
        ([], None),
    ],
)
def test_the_quantile_is_that_of_prometheus(buckets: list[tuple[float, float]], seconds: float | None) -> None:
    found = quantile(0.95, buckets)
    assert found == (None if seconds is None else pytest.approx(seconds))

"""Metrics of ladders as the operator and the command line read them: what an engine and what any pod writes."""

from typing import Any

import pytest

from graphpod_operator.observe.ladder_use import (
    MOST_SAMPLES,
    NoLadderMetrics,
    phase_uses,
    samples,
    together,
)
from graphpod_policy import Phase, Policy
from graphpod_policy.ladder.advice import SizeUse
from tests.unit.operator.ladders import DECODE, MEMORY_BYTES, exposition

TEXT = exposition({Phase.Prefill: [3, 9], Phase.Decode: [3, 3, 6]})


def read(text: bytes) -> Any:
    return phase_uses(samples(text))


def test_the_text_of_metrics_gives_passes_replays_and_padding_of_each_phase() -> None:
    found = read(TEXT)
    decode = found[Phase.Decode]
    assert decode.policy is Policy.Full
    assert decode.memory_bytes == MEMORY_BYTES
    assert decode.use.ladder == DECODE
    assert decode.use.sizes == (SizeUse(1, 0, 0), SizeUse(2, 0, 0), SizeUse(4, 2, 2), SizeUse(8, 1, 2))
    assert (decode.use.passes, decode.use.rows, decode.use.above) == (3, 12, 2)
    assert (found[Phase.Prefill].use.passes, found[Phase.Prefill].use.padding) == (2, 8)


def test_pods_with_one_ladder_are_added_and_the_ladder_of_most_passes_decides() -> None:
    one = read(TEXT)[Phase.Decode]
    other = read(exposition({Phase.Decode: [6]}, {Phase.Prefill: (4,), Phase.Decode: (2, 8)}))[Phase.Decode]
    both = together((one, other, one))
    assert both is not None
    assert (both.use.passes, both.use.rows, both.use.padding, both.use.above) == (6, 24, 8, 4)
    assert both.memory_bytes == MEMORY_BYTES
    assert together(()) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff" * 100,
        b"graphpod_graph_requested_rows_bucket",
        TEXT.replace(b"graphpod_graph_requested_rows", b"graphpod_other"),
        TEXT.replace(b"graphpod_graph_policy_info", b"graphpod_other"),
        TEXT.replace(b'effective="Full"', b'effective="Fuller"'),
        TEXT.replace(b'le="8.0"', b'le="7.5"'),
        TEXT.replace(b'le="8.0"', b'le="NaN"'),
        TEXT.replace(b'replays_total{phase="decode",backend="Recorder",policy="Full",size="4"} 2.0',
                     b'replays_total{phase="decode",backend="Recorder",policy="Full",size="4"} 9.0'),
        TEXT.replace(b'requested_rows_sum{phase="decode",backend="Recorder"} 12.0',
                     b'requested_rows_sum{phase="decode",backend="Recorder"} 1e15'),
        TEXT.replace(b'requested_rows_sum{phase="decode",backend="Recorder"} 12.0',
                     b'requested_rows_sum{phase="decode",backend="Recorder"} 1e300'),
        TEXT.replace(b'size="4"} 2.0', b'size="0"} 2.0'),
        TEXT + b"".join(
            b'graphpod_graph_size_replays_total{phase="decode",size="%d"} 0\n' % size for size in range(9, 200)
        ),
        TEXT + b'graphpod_graph_memory_bytes{phase="decode"} 1\n' * MOST_SAMPLES,
    ],
)  # fmt: skip
def test_a_text_that_no_engine_writes_is_refused(text: bytes) -> None:
    with pytest.raises(NoLadderMetrics):
        read(text)


def test_lines_of_others_are_passed_over() -> None:
    more = b'graphpod_graph_new_total{phase="decode",x="{"} 1\nup 1\ngraphpod_graph_memory_bytes{phase="other"} 3\n'
    assert read(more + TEXT + more) == read(TEXT)

"""What a person reads."""

import msgspec
import pytest

from graphpod_runtime.bench.figures.result import Found, Left
from graphpod_runtime.bench.figures.variants import VARIANTS
from graphpod_runtime.bench.output.table import digits, table

from .samples import found, made_up


def line(text: str, title: str, name: str) -> str:
    """The first line that starts with `name` under `title`."""
    part = text[text.index(title) :]
    return next(line for line in part.splitlines() if line.startswith(f"{name} "))


def test_a_prefill_is_told_in_ms_beside_eager_and_its_floor() -> None:
    # 3.8 ms and 20 µs a token, twice that and eager four times; weights take 3.8 ms at the least.
    text = table(made_up(), width=200)
    assert line(text, "Prefill of one request", "floor").split()[:3] == ["floor", "3.80", "memory"]
    assert line(text, "Prefill of one request", "Breakable").split()[:4] == ["Breakable", "8.88", "1.86×", "43%"]


def test_a_decode_is_told_in_tokens_per_second() -> None:
    # 8 ms a step.
    told = line(table(made_up(), width=200), "Decode, every token", "Full")
    assert told.split()[:4] == ["Full", "125", "2.00×", "48%"]


def test_times_over_the_wire_stand_beside_those_in_process() -> None:
    text = table(made_up(), width=200)
    assert line(text, "Prefill over the engine's wire", "Breakable").split()[:3] == ["Breakable", "9.26", "0.96×"]


def test_a_break_is_told_in_microseconds() -> None:
    assert line(table(made_up("breakable")), "Breaks:", "prefill 64, Breakable").split()[3:] == [
        "36",
        "7.76",
        "7.50",
        "0.264",
        "7.33",
    ]


def test_captures_are_told_in_sum_and_by_size() -> None:
    text = table(made_up("breakable"), width=200)
    in_sum = line(text, "Capture, in sum", "prefill").split()
    assert in_sum == ["prefill", "Breakable", "11/11", "37", "0.465", "200.0", "44.0", "244.0", "Passed"]
    assert line(text, "Capture of one prefill size, of 11", "Breakable").split()[-4:] == ["28.4", "200.0", "|", "4.0"]


def test_cold_and_warm_starts_are_two_lines() -> None:
    text = table(made_up("breakable-inductor"))
    compile = line(text, "Start, s", "variant,").split().index("Compile") - 3
    for cache, seconds in (("cold", "12.0"), ("warm", "2.00")):
        assert line(text, "Start, s", f"breakable-inductor, {cache}").split()[2:][compile] == seconds


def test_the_capture_clock_is_the_sum_of_its_parts() -> None:
    text = table(made_up("eager", "breakable"))
    assert line(text, "Capture clock", "breakable").split() == ["breakable", "2.25", "0.500", "-", "0.250", "1.50"]
    assert "eager" not in text[text.index("Capture clock") :]


@pytest.mark.parametrize("width", [80, 120])
def test_tables_of_speeds_break_into_blocks_that_fit(width: int) -> None:
    text = table(made_up(), width=width)
    part = text[text.index("Prefill of one request") : text.index("Breaks:")]
    assert max(map(len, part.splitlines())) <= width
    for tokens in (64, 256, 512, 1024, 2048):
        assert f"{tokens} tokens" in part


def test_what_did_not_run_as_asked_is_told() -> None:
    failed = Found(VARIANTS["piecewise"], failure="CaptureFailed: x")
    fell = msgspec.structs.replace(found("breakable"), fallbacks=3, breaks_left_out="no room")
    text = table(made_up("eager", left_out=(Left("eager-inductor", "not built"),), changed=(failed, fell)))
    for note in (
        "! piecewise failed: CaptureFailed: x",
        "! breakable: 3 passes fell back to eager: they are in its times",
        "! breakable: no break costs: no room",
        "! eager-inductor was left out: not built",
    ):
        assert note in text.splitlines()


@pytest.mark.parametrize(
    ("value", "told"), [(0.0123, "0.0123"), (1.2, "1.20"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12346")]
)
def test_figures_have_three_digits(value: float, told: str) -> None:
    assert digits(value) == told

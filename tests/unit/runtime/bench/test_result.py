"""From raw times to speeds, and to JSON and back."""

import json
from pathlib import Path

import msgspec
import pytest

from graphpod_policy import Phase, Policy
from graphpod_runtime.bench.figures.meter import Samples
from graphpod_runtime.bench.figures.result import Found, Result, Row, read, step_seconds
from graphpod_runtime.bench.figures.result_file import write
from graphpod_runtime.bench.figures.variants import REFERENCE, VARIANTS

from .samples import WORK, found, made_up, samples


def row(result: Result, name: str) -> Row:
    return next(row for row in result.rows if row.variant.name == name)


def test_decode_is_the_difference_of_two_generations() -> None:
    # batch · 128 / (t(136 new) - t(8 new)), the least of each: disturbance only adds.
    samples = Samples({}, {8: [0.2, 0.3]}, {8: [0.9, 0.84]})
    assert 8 / step_seconds(samples, WORK)[8] == pytest.approx(8 * 128 / (0.84 - 0.2))


def test_a_batch_whose_difference_is_lost_in_noise_has_no_speed() -> None:
    assert step_seconds(Samples({}, {8: [0.9]}, {8: [0.8]}), WORK) == {}


def test_prefill_is_the_median() -> None:
    one = msgspec.structs.replace(found("eager"), samples=Samples({64: [3.0, 1.0, 2.0]}, {}, {}))
    assert made_up("breakable", changed=(one,)).rows[1].prefill[0].seconds == 2.0


def test_each_speed_stands_beside_its_floor_and_eager_of_the_same_run() -> None:
    result = made_up()
    for phase in Phase:
        for floor, eager, graph in zip(
            result.floors(phase),
            row(result, "eager").speeds(phase),
            row(result, "breakable").speeds(phase),
            strict=True,
        ):
            assert floor.size == eager.size == graph.size
            assert graph.of_floor == pytest.approx(floor.seconds / graph.seconds)
            assert graph.times_eager == pytest.approx(eager.seconds / graph.seconds)
            assert eager.times_eager == 1


def test_without_eager_there_is_no_ratio_to_it() -> None:
    assert {speed.times_eager for speed in made_up("breakable").rows[0].prefill} == {None}


def test_compiled_eager_is_not_eager() -> None:
    assert {speed.times_eager for speed in made_up("eager-inductor").rows[0].decode} == {None}


def test_transformers_is_neither_eager_nor_shown_as_it() -> None:
    reference = Found(REFERENCE, samples=samples(9.0))
    result = made_up("breakable", changed=(reference,))
    assert [row.label(Phase.Decode) for row in result.rows_of(Phase.Decode)] == ["Full", "transformers"]
    assert {speed.times_eager for row in result.rows for speed in row.decode} == {None}


def test_a_phase_that_ran_weaker_than_asked_is_not_shown_as_what_was_asked() -> None:
    whole = found("piecewise")
    start = whole.starts[-1]
    phases = start.phases | {Phase.Prefill: found("eager").starts[0].phases[Phase.Prefill]}
    weaker = msgspec.structs.replace(whole, starts=(msgspec.structs.replace(start, phases=phases),))
    result = made_up("eager", changed=(weaker,))
    assert [row.label(Phase.Prefill) for row in result.rows_of(Phase.Prefill)] == ["eager"]
    assert [row.label(Phase.Decode) for row in result.rows_of(Phase.Decode)] == ["eager", "Breakable"]
    assert result.rows[1].effective(Phase.Prefill) is Policy.Disabled


def test_a_variant_that_failed_keeps_its_reason_and_shows_nothing() -> None:
    result = made_up("eager", changed=(Found(VARIANTS["breakable"], failure="no memory"),))
    assert result.rows[1].failure == "no memory"
    assert [row.variant.name for row in result.rows_of(Phase.Prefill)] == ["eager"]


def test_a_result_is_the_same_after_its_json(tmp_path: Path) -> None:
    result = made_up()
    write(result, tmp_path / "there" / "result.json")
    assert read(tmp_path / "there" / "result.json") == result


def test_the_json_names_what_it_was_made_with(tmp_path: Path) -> None:
    write(made_up("eager"), tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_bytes())
    assert {"command", "date", "machine", "model", "workload", "rates", "tookSeconds"} <= set(content)
    assert {"device", "driver", "threads", "versions", "cpu", "memoryBytes"} <= set(content["machine"])
    assert {"size", "seconds", "ofFloor", "timesEager", "wireSeconds"} <= set(content["rows"][0]["prefill"][0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "not what `bench graphs --json` writes"),
        ('{"format": "graphpod bench graphs 1"}', "missing required field `command`"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(match=words):
        read(tmp_path / "x.json")


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    write(msgspec.structs.replace(made_up("eager"), format="graphpod bench graphs 0"), tmp_path / "x.json")
    with pytest.raises(match="this version reads 'graphpod bench graphs 1'; run the benchmark again"):
        read(tmp_path / "x.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(match=r"x\.json: No such file"):
        read(tmp_path / "x.json")

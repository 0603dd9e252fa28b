"""`graphpod-engine bench graphs`, as its user runs it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from graphpod_policy import CompileMode, ExitCode, Phase, Policy
from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.bench import child, graphs
from graphpod_runtime.bench.figures.result import Cache, read
from graphpod_runtime.bench.figures.result_file import write
from graphpod_runtime.bench.output import plot
from graphpod_runtime.cli import main
from tests.forked import Program

from .samples import made_up

TINY = """{"architectures": ["LlamaForCausalLM"], "vocab_size": 211, "hidden_size": 48, "intermediate_size": 96,
"num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 512,
"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "eos_token_id": 2}"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a config.json and no weights."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(TINY)
    return folder


def forked_child(command: list[str], *, env: dict[str, str], stderr: IO[str], **pipes: object) -> Program:
    """A process of the benchmark as a fork of this one, which has its imports."""
    assert command[:-1] == [*MODULE, child.__name__]
    assert pipes == {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def program() -> int:
        sys.argv = [child.__name__, command[-1]]
        return child.main()

    return Program(program, env, stderr.fileno())


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, each of which imports torch unless it is a fork."""
    if request.param == "forked":
        popen = SimpleNamespace(Popen=forked_child, PIPE=subprocess.PIPE)
        monkeypatch.setattr("graphpod_runtime.bench.process.subprocess", popen)


@pytest.mark.usefixtures("children")
def test_a_run_measures_every_size_of_every_variant(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    words = ["--prefill-tokens", "4,20", "--decode-batches", "1,2", "--rounds", "1", "--json", str(out)]
    variants = ["--variant", "eager", "--variant", "breakable"]
    assert main(["bench", "graphs", "--random", str(tiny), *words, *variants, "--png", str(picture)]) == 0
    told = capsys.readouterr()
    assert "Prefill of one request" in told.out
    assert "breakable: Ready in" in told.err
    assert picture.stat().st_size > 10_000
    result = read(out)
    assert result.command.startswith("graphpod-engine bench graphs --random tiny --prefill-tokens 4,20")
    assert (result.model.vocab, result.model.random, result.workload.rounds) == (211, True, 1)
    assert [row.variant.name for row in result.rows] == ["eager", "breakable"]
    for row in result.rows:
        assert row.failure is None
        assert row.fallbacks == 0
        assert [speed.size for speed in row.prefill] == [4, 20]
        assert [start.cache for start in row.starts] == [Cache.Unused]
        assert {tokens: len(times) for tokens, times in row.samples.prefill.items()} == {4: 1, 20: 1}
        assert {batch: len(times) for batch, times in row.wire.long.items()} == {1: 1, 2: 1}
    captures = result.rows[1].starts[0].phases
    assert (captures[Phase.Prefill].policy, captures[Phase.Prefill].segments) == (Policy.Breakable, 4)
    assert captures[Phase.Decode].policy is Policy.Full
    assert captures[Phase.Decode].captured == captures[Phase.Decode].planned == 2
    assert [(cost.phase, cost.size, cost.breaks) for cost in result.rows[1].breaks] == [
        (Phase.Prefill, 4, 3),
        (Phase.Prefill, 20, 3),
    ]


@pytest.mark.usefixtures("children")
def test_a_folder_without_a_model_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "graphs", "--random", str(tmp_path), "--variant", "eager"]) == ExitCode.ModelInvalid
    assert f"{tmp_path}: no config.json" in capsys.readouterr().err


def test_an_earlier_result_is_told_and_drawn_without_torch(tmp_path: Path) -> None:
    write(made_up(), tmp_path / "in.json")
    program = (
        "import sys; from graphpod_runtime.cli import main; code = main(sys.argv[1:]); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules))); sys.exit(code)"
    )
    words = ["bench", "graphs", "--from", str(tmp_path / "in.json"), "--png", str(tmp_path / "out.png")]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("made-up-8b, bfloat16, random weights")
    assert done.stdout.endswith("[]\n")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_matplotlib_is_told_before_minutes_of_measuring(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    words = ["bench", "graphs", "--random", str(tiny), "--png", "x.png"]
    assert main(words) == ExitCode.ConfigInvalid
    assert "--png needs matplotlib, which is not installed" in capsys.readouterr().err


def test_a_word_about_measuring_is_refused_beside_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", "graphs", "--from", "x.json", "--rounds", "2"])
    assert caught.value.code == 2
    assert "--rounds goes with --model or --random; with --from the file says it" in capsys.readouterr().err


def test_a_variant_that_the_engine_does_not_have_is_refused_by_its_name(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("graphpod_policy.engine_features.BUILT_COMPILE", (CompileMode.Nothing,))
    with pytest.raises(SystemExit) as caught:
        main(["bench", "graphs", "--random", str(tiny), "--device", "cpu", "--variant", "eager-inductor"])
    assert caught.value.code == 2
    assert "spec.graph.compile: Inductor is not built in this version" in capsys.readouterr().err


def test_compiled_layers_are_not_measured_where_a_rule_is_against_them(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "graphs", "--random", str(tiny), "--device", "cpu", "--variant", "breakable-inductor"])
    assert "NoCompiler: the engine's image for CPUs has no compiler" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["0", "4,-1"])
def test_sizes_are_counts(sizes: str) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "graphs", "--random", ".", "--prefill-tokens", sizes])


def test_the_help_names_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        graphs.main(["--help"])
    told = capsys.readouterr().out
    for name in graphs.VARIANTS:
        assert f"  {name} " in told

"""`graphpod-engine bench serve` as its user runs it, against a stub in this process."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.bench.figures.result_file import write
from graphpod_runtime.bench.serve import command
from graphpod_runtime.bench.serve.figures.report import Report, read
from graphpod_runtime.bench.serve.figures.summary import Summary
from graphpod_runtime.cli import main
from tests.eventually import Eventually

from .samples import report
from .stub import Stub, serving


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving(Stub()) as running:
        yield running


def bench(stub: Stub, *words: str) -> int:
    """The command against the stub."""
    return main(["bench", "serve", "--url", stub.url, "--warm-up", "0", *words])


def measured(stub: Stub, tmp_path: Path, *words: str, code: int = 0) -> Summary:
    """What one run has seen of its first load."""
    out = tmp_path / "out.json"
    assert bench(stub, "--json", str(out), *words) == code
    return read(out).rows[0].parts[0].seen


def test_a_run_sends_every_request_once_and_counts_all_of_it(stub: Stub, tmp_path: Path) -> None:
    words = ("--concurrency", "4", "--requests", "21", "--input", "5-9", "--output", "3", "--processes", "2")
    seen = measured(stub, tmp_path, *words)
    assert (seen.completed, seen.cancelled, seen.failed) == (21, 0, 0)
    assert (seen.output_tokens, seen.pieces) == (63, 63)
    assert seen.input_tokens == sum(len(body["prompt"]) for body in stub.bodies)
    assert len({str(body["prompt"]) for body in stub.bodies}) == 21
    assert stub.most_open <= 4
    for body in stub.bodies:
        assert 5 <= len(body["prompt"]) <= 9
        assert body["model"] == "tiny"
        assert body["stream_options"] == {"include_usage": True}
        assert (body["max_tokens"], body["temperature"], body["ignore_eos"]) == (3, 0, True)
    found = read(tmp_path / "out.json")
    assert found.server.version == "stub 1.2.3"
    assert found.rows[0].words == "--concurrency 4 --requests 21 --input 5-9 --output 3"
    assert found.rows[0].drivers.processes == 2
    assert (found.rows[0].parts[0].prompts, found.rows[0].parts[0].seed) == ("ids", "0:load:0")


def test_the_requests_are_the_same_from_any_number_of_processes(stub: Stub) -> None:
    asked = []
    for processes in ("1", "3"):
        stub.bodies.clear()
        words = ("--rate", "400", "--requests", "20", "--input", "3-6", "--output", "1-4")
        assert bench(stub, *words, "--processes", processes) == 0
        asked.append(sorted(str(body) for body in stub.bodies))
    assert asked[0] == asked[1]


def test_failures_are_counted_by_kind_said_first_and_end_with_an_error(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.fail_every = 5
    seen = measured(stub, tmp_path, "--requests", "20", "--input", "4", "--output", "2", code=command.INCOMPLETE)
    assert (seen.completed, seen.failed) == (16, 4)
    assert [(one.kind, one.count, one.example) for one in seen.failures] == [("HTTP 429", 4, "the queue is full")]
    shown = capsys.readouterr().out
    assert shown.startswith("FAILED: 4 of 20 requests of load\n  4 × HTTP 429, first: the queue is full\n")


@pytest.mark.parametrize(("failure", "kind"), [("event", "error event"), ("cut", "stream cut")])
def test_a_stream_that_breaks_off_is_a_failure(stub: Stub, tmp_path: Path, failure: str, kind: str) -> None:
    stub.fail_every, stub.failure = 2, failure
    seen = measured(stub, tmp_path, "--requests", "4", "--input", "4", "--output", "3", code=command.INCOMPLETE)
    assert [(one.kind, one.count) for one in seen.failures] == [(kind, 2)]


def test_a_request_that_takes_too_long_is_a_failure(stub: Stub, tmp_path: Path) -> None:
    stub.pause = 30
    words = ("--requests", "1", "--input", "4", "--output", "3", "--timeout", "0.3")
    seen = measured(stub, tmp_path, *words, code=command.INCOMPLETE)
    assert [one.kind for one in seen.failures] == ["timeout"]


def test_cancelled_requests_leave_after_so_many_pieces_and_the_server_sees_it(
    stub: Stub, tmp_path: Path, eventually: Eventually
) -> None:
    stub.pause = 0.05
    words = ("--requests", "6", "--input", "4", "--output", "200", "--cancel", "1", "--cancel-after", "2")
    seen = measured(stub, tmp_path, *words)
    assert (seen.completed, seen.cancelled, seen.failed) == (0, 6, 0)
    assert seen.pieces < 6 * 100, "of 200 each, in ten seconds"
    eventually(lambda: stub.left == 6)


def test_a_chat_goes_on_with_what_the_server_said(stub: Stub, tmp_path: Path) -> None:
    words = ("--requests", "2", "--concurrency", "1", "--turns", "3", "--input", "6", "--next-input", "2")
    seen = measured(stub, tmp_path, *words, "--output", "2")
    assert seen.completed == 6
    assert [found.count for found in seen.turn_ttft if found] == [2, 2, 2]
    assert set(stub.paths) == {"/v1/chat/completions"}
    assert [len(body["messages"]) for body in stub.bodies] == [1, 3, 5] * 2
    assert [turn["content"] for turn in stub.bodies[2]["messages"]][1::2] == [" w0 w1", " w0 w1"]


def test_prompts_are_text_where_the_server_refuses_ids(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.ids, stub.usage = False, False
    seen = measured(stub, tmp_path, "--requests", "2", "--input", "5", "--output", "3")
    assert all(len(body["prompt"].split()) == 5 for body in stub.bodies)
    assert "prompts are text: the server refuses token ids below 32000: HTTP 400" in capsys.readouterr().err
    assert read(tmp_path / "out.json").rows[0].parts[0].prompts == "text"
    assert (seen.without_usage, seen.output_tokens, seen.input_tokens) == (2, 6, 0)


def test_another_load_runs_as_long_as_the_first(stub: Stub, tmp_path: Path) -> None:
    stub.pause = 0.02
    words = ("--concurrency", "2", "--requests", "4", "--input", "3", "--output", "20")
    also = "--rate 20 --arrivals constant --input 7 --output 1"
    assert measured(stub, tmp_path, *words, "--also", also).completed == 4
    (row,) = read(tmp_path / "out.json").rows
    beside = row.parts[1].seen
    assert row.parts[1].words == also
    assert beside.completed >= 8, "twenty a second for at least 0.8 s, on a machine that is busy"
    assert beside.failed == 0
    lengths = Counter(len(body["prompt"]) for body in stub.bodies)
    assert lengths == {3: 4, 7: beside.completed}


def test_the_key_is_sent_and_is_in_no_file(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret-1\n")
    measured(stub, tmp_path, "--requests", "1", "--output", "1", "--api-key-file", str(tmp_path / "key"))
    assert stub.keys == {"Bearer secret-1"}
    assert "secret-1" not in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read"), (" \n", "is empty")])
def test_a_file_without_a_key_is_refused(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    assert bench(stub, "--api-key-file", str(file)) == ExitCode.ConfigInvalid
    assert f"--api-key-file {file} {message}" in capsys.readouterr().err


ROWS = "a --requests 2 --input 3 --output 1\nb --requests 3 --input 4 --output 1\n"


def test_a_suite_goes_on_where_it_ended(stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = tmp_path / "rows", tmp_path / "out.json"
    rows.write_text(ROWS)
    words = ("--suite", str(rows), "--json", str(out))
    assert bench(stub, *words, "--only", "a") == 0
    assert bench(stub, *words) == 0
    assert len(stub.bodies) == 5
    assert [row.name for row in read(out).rows] == ["a", "b"]
    assert "a is in" in capsys.readouterr().err
    rows.write_text(ROWS.replace("2 --input 3", "4 --input 3"))
    assert bench(stub, *words) == 0
    assert len(stub.bodies) == 9, "a row with other words is another row"
    assert bench(stub, *words, "--again", "--only", "b") == 0
    assert len(stub.bodies) == 12
    assert bench(stub, *words, "--seed", "1", "--only", "b") == 0
    assert len(stub.bodies) == 15, "a row with another seed is another row"
    assert [row.parts[0].seen.completed for row in read(out).rows] == [4, 3]


def test_a_row_that_failed_is_measured_again_and_one_of_another_server_is_not_mixed_in(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows", tmp_path / "out.json"
    rows.write_text(ROWS)
    words = ("--suite", str(rows), "--json", str(out))
    stub.fail_every = 4
    assert bench(stub, *words) == command.INCOMPLETE
    stub.fail_every = 0
    assert bench(stub, *words) == 0
    assert len(stub.bodies) == 5 + 3
    found = read(out)
    write(Report(**{name: getattr(found, name) for name in found.__struct_fields__} | {"server": report().server}), out)
    assert bench(stub, *words, "--again") == ExitCode.ConfigInvalid
    assert "the --json file is of made-up-8b by stub 1.2.3, and this server has tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (("--model", "/models/tiny"), "this run is of graphpod-engine serve --model tiny;"),
        (("--model", "/models/tiny", "--serve", "--max-batch 8"), "serve --model tiny --max-batch 8;"),
        (("--url", "http://127.0.0.1:9"), "this run is of a --url;"),
    ],
)
def test_rows_of_an_engine_with_other_options_are_not_taken_for_this_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: tuple[str, ...], message: str
) -> None:
    rows, out = tmp_path / "rows", tmp_path / "out.json"
    rows.write_text("a --requests 2\n")
    found = report("a")
    row = msgspec.structs.replace(found.rows[0], words="--requests 2")
    server = msgspec.structs.replace(found.server, command="graphpod-engine serve --model tiny --max-batch 4")
    write(msgspec.structs.replace(found, server=server, rows=(row,)), out)
    assert main(["bench", "serve", *source, "--suite", str(rows), "--json", str(out)]) == ExitCode.ConfigInvalid
    told = capsys.readouterr().err
    assert "the --json file is of graphpod-engine serve --model tiny --max-batch 4, and" in told
    assert message in told


def test_an_earlier_report_is_shown_drawn_and_compared_without_torch(tmp_path: Path) -> None:
    write(report("a", "b"), tmp_path / "mine.json")
    write(report("a", "b", slower=2.0, failed=1), tmp_path / "its.json")
    program = (
        "import sys; from graphpod_runtime.cli import main; code = main(sys.argv[1:]); "
        "print(sorted({'torch', 'transformers', 'aiohttp'} & set(sys.modules))); sys.exit(code)"
    )
    words = ["bench", "serve", "--from", str(tmp_path / "mine.json"), "--against", str(tmp_path / "its.json")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--png", str(tmp_path / "out.png")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "× of made-up-8b by stub 1.2.3" in done.stdout
    assert done.stdout.endswith("[]\n")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--url", "localhost:8000"), "is no URL"),
        (("--url", "http://127.0.0.1:9"), "does not answer"),
    ],
)
def test_a_url_without_a_server_is_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "serve", *words]) == command.INCOMPLETE
    assert message in capsys.readouterr().err


def test_a_model_that_the_server_lacks_is_refused_with_those_it_has(
    stub: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(stub, "--name", "big") == command.INCOMPLETE
    assert "has no model 'big'; give one of these as --name: tiny" in capsys.readouterr().err


def test_a_server_without_a_model_is_refused(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.models = ()
    assert bench(stub) == command.INCOMPLETE
    assert "/models names no model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--suite", "cpu", "--requests", "3"), "--suite has its own rows; leave out --requests 3"),
        (("--only", "a"), "--only picks rows of a --suite"),
        (("--suite", "cpu", "--only", "absent"), "no row of cpu matches absent"),
        (("--arrivals", "gamma"), "go with --rate"),
        (("--serve", "--max-batch 4"), "give it with --model"),
    ],
)
def test_words_that_contradict_each_other_are_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9", *words]) == ExitCode.ConfigInvalid
    assert message in capsys.readouterr().err


def test_words_about_measuring_are_refused_with_an_earlier_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--requests", "3"], ["--suite", "cpu"], ["--processes", "2"]):
        assert main(["bench", "serve", "--from", str(tmp_path / "x.json"), *words]) == ExitCode.ConfigInvalid
        assert f"{words[0]} goes with --url or --model; --from measures nothing" in capsys.readouterr().err


def test_a_missing_aiohttp_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9"]) == ExitCode.ConfigInvalid
    assert "pip install '.[bench]'" in capsys.readouterr().err


def test_the_help_names_every_suite_and_both_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["serve", "--help"], ["--help"]):
        with pytest.raises(SystemExit):
            main(["bench", *words])
    shown = capsys.readouterr().out
    for name in (*command.SUITES, "graphs", "serve"):
        assert name in shown

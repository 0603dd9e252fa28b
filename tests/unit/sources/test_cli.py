"""The program: its arguments, its exit codes, its port and the message it leaves."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from graphpod_sources.cli import main
from graphpod_sources.problem import Exit, Problem, Reason
from graphpod_sources.progress import Phase, Progress
from graphpod_sources.report import disk_rate, termination
from graphpod_sources.report.server import Server
from stubs import hub
from stubs.faults.fault import Fault, Freeze
from stubs.web import Where
from tests.eventually import Eventually
from tests.loopback import LOOPBACKS
from tests.unit.sources.fetching import MODEL, put, there

KEYS = {
    "phase",
    "commit",
    "bytes",
    "totalBytes",
    "bytesPerSecond",
    "secondsLeft",
    "files",
    "totalFiles",
    "reason",
    "message",
}


def call(tmp_path: Path, uri: str, *more: str) -> int:
    (tmp_path / "cache").mkdir(exist_ok=True)
    where = ["--root", str(tmp_path / "cache"), "--folder", "model", "--port", "0"]
    files = ["--termination-log", str(tmp_path / "end"), "--credentials", str(tmp_path / "secret")]
    kept = signal.getsignal(signal.SIGTERM)
    try:
        return main([uri, *where, *files, *more])
    finally:
        signal.signal(signal.SIGTERM, kept)


def left(tmp_path: Path) -> dict[str, object]:
    return dict(json.loads((tmp_path / "end").read_bytes()))


def test_a_fetch_ends_with_0_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "source", MODEL)
    assert call(tmp_path, f"file://{tmp_path}/source") == Exit.Complete
    assert there(tmp_path / "cache/model") == MODEL
    assert set(left(tmp_path)) == KEYS
    assert left(tmp_path)["phase"] == "Complete"
    shown = capsys.readouterr().out
    assert re.search(r"3 files, 2\.9 MiB, commit sha256:\w+\n2\.9 MiB downloaded in \d+\.\d s: ", shown)
    assert "the disk takes" not in shown


def test_a_long_download_is_compared_with_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "source", MODEL)
    monkeypatch.setattr("graphpod_sources.cli.WORTH", 1000)
    monkeypatch.setattr(disk_rate, "PROBE", 4 << 20)
    assert call(tmp_path, f"file://{tmp_path}/source") == Exit.Complete
    assert re.search(r"; the disk takes \d+\.\d [KMG]iB/s\n", capsys.readouterr().out)
    assert not list((tmp_path / "cache").rglob("*probe*"))


@pytest.mark.parametrize(
    ("uri", "code", "reason"),
    [
        ("s3:/x", Exit.Failed, "BadUri"),
        ("file:///no/such", Exit.Failed, "NotFound"),
        ("oci://127.0.0.1:9/a/b:c", Exit.TryAgain, "Unreachable"),
    ],
)
def test_a_fetch_that_fails_ends_with_the_code_of_its_reason(tmp_path: Path, uri: str, code: Exit, reason: str) -> None:
    assert call(tmp_path, uri, "--stall-seconds", "0.2") == code
    report = left(tmp_path)
    assert (report["phase"], report["reason"]) == ("Failed", reason)
    assert "Next step: " in str(report["message"])


def test_the_token_of_the_secret_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "served/org/tiny/main", MODEL)
    with hub.serve(tmp_path / "served", token="hf_right").serving() as stub:
        put(tmp_path / "secret", {"token": b"hf_right\n", "hosts": stub.url.encode()})
        monkeypatch.setenv("HF_ENDPOINT", stub.url)
        assert call(tmp_path, "hf://org/tiny") == Exit.Complete


@pytest.mark.parametrize(
    "more",
    [
        *(["--folder", "../x"], ["--folder", ".."], ["--keep", "a/b"], ["--sha256", "12"], ["--port", "99999"]),
        *(["--stall-seconds", "0"], ["--stall-seconds", "nan"], ["--size", "-1"], ["--root", "/no/such/folder"]),
    ],
)
def test_an_argument_that_cannot_be_is_refused_with_what_can(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(tmp_path, "hf://org/tiny", *more)
    assert caught.value.code == 2
    assert more[0] in capsys.readouterr().err


def test_the_port_shows_progress_while_it_goes_on_and_a_signal_leaves_it_behind(
    tmp_path: Path, eventually: Eventually
) -> None:
    put(tmp_path / "served/org/tiny/main", MODEL)
    (tmp_path / "cache").mkdir()
    with hub.serve(tmp_path / "served").serving() as stub:
        frozen = stub.board.add(Fault(Freeze(), Where(path="/cdn/")))
        command = [sys.executable, "-m", "graphpod_sources.cli", "hf://org/tiny", "--root", str(tmp_path / "cache")]
        command += ["--folder", "model", "--port", "0", "--termination-log", str(tmp_path / "end")]
        environment = {**os.environ, "HF_ENDPOINT": stub.url}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = re.search(r"port (\d+)", process.stdout.readline())
            assert found is not None
            frozen.reached()

            def report() -> dict[str, Any]:
                with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/progress", timeout=60) as answer:
                    said: dict[str, Any] = json.load(answer)
                return said

            eventually(lambda: report()["files"] == 2)  # the others come side by side with the frozen one
            last = report()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
    assert set(last) == KEYS
    assert (last["phase"], last["totalFiles"], last["files"]) == ("Downloading", 3, 2)
    assert left(tmp_path)["phase"] == "Downloading"


def test_the_port_answers_what_it_has_and_nothing_else() -> None:
    server = Server(Progress(), 0)
    server.start()
    base = f"http://127.0.0.1:{server.port}"
    for host in [host for family, host in LOOPBACKS if family == socket.AF_INET or socket.has_dualstack_ipv6()]:
        with socket.create_connection((host, server.port), timeout=10) as client:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert client.makefile().read().endswith('{"status": "ok"}\n')
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/etc/passwd", timeout=10)
    server.shutdown()
    server.server_close()


def test_a_message_is_cut_to_what_kubernetes_keeps_and_stays_json() -> None:
    progress = Progress()
    progress.fail(Problem(Reason.NoWeights, "ü" * 50_000))
    content = termination.message(progress.snapshot())
    assert len(content) <= 4096
    assert json.loads(content)["reason"] == "NoWeights"


def test_rates_and_what_is_left_come_from_the_last_seconds() -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    progress.resolved("c", 1000, 1)
    progress.enter(Phase.Downloading)
    for _ in range(20):
        now[0] += 1.0
        progress.receive(10)
    found = progress.snapshot()
    assert (found.bytes, found.bytes_per_second, found.seconds_left) == (200, 10, 80)
    now[0] += 5.0
    assert progress.idle == 5.0

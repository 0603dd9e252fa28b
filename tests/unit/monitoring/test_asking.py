"""A Prometheus that is not there, or is something else."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from monitoring import __main__ as command
from monitoring.boards import BOARDS
from monitoring.boards.asking import NoPrometheus, Span, answer, marked

SPAN = Span(end=100.0, length=60.0, scrape=15.0)
PANEL = next(BOARDS[0].panels())


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """The URL of something that answers every request so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"{}"), (200, b"[]"), (404, b""), (200, b'{"data": null}')],
)
def test_what_is_no_prometheus_is_an_error_with_its_url(status: int, body: bytes) -> None:
    with answering(status, body) as url, pytest.raises(NoPrometheus, match=f"^{url} does not answer as a Prometheus"):
        answer(url, BOARDS[0], PANEL, PANEL.queries[0], SPAN)


def test_a_moment_within_the_time_shown_is_marked_once() -> None:
    def row(pod: str, *values: str) -> dict[str, object]:
        return {"metric": {"namespace": "a", "pod": pod}, "values": [[at, value] for at, value in enumerate(values)]}

    found = [row("late", "101"), row("b", "70", "70"), row("early", "39.5"), row("again", "60", "60", "80")]
    with answering(200, json.dumps({"data": {"result": found}}).encode()) as url:
        shown = marked(url, replace(BOARDS[0], marks=BOARDS[0].marks[:1]), SPAN)
    assert shown == [(60, "start of a/again"), (70, "start of a/b"), (80, "start of a/again")]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no url"])
def test_draw_without_a_prometheus_ends_with_what_to_check(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["monitoring", "draw", "--prometheus", url, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    said = capsys.readouterr().err
    assert said.startswith(f"error: {url} does not answer as a Prometheus does: ")
    assert said.endswith("; check --prometheus\n")
    assert list(tmp_path.iterdir()) == []

"""The front's life: warm-up, full queue, clients that leave, drain, and every way to die."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from graphpod_policy import EngineConfig, ExitCode, ServingConfig
from graphpod_runtime.front import watchdog

from .conftest import Front, eventually
from .scripted_engine import SLOW_SECONDS, SLOW_STEPS

Start = Callable[..., Front]
# Minutes of tokens: whatever a test sees end was ended.
ENDLESS = {"model": "echo", "prompt": "ab", "ignore_eos": True, "max_tokens": 190_000}

JSON = {"content-type": "application/json"}


class Stream:
    """A streaming request by hand, so that the test can leave or look at any time."""

    def __init__(self, front: Front, **body: Any) -> None:
        address = urlsplit(front.http)
        self.connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        self.connection.request(
            "POST", "/v1/completions", json.dumps({**ENDLESS, "stream": True, **body}), JSON
        )  # fmt: skip
        self.response = self.connection.getresponse()
        assert self.response.status == 200

    def events(self) -> Iterator[dict[str, Any]]:
        """What the stream carries, to its end; [DONE] is left out."""
        for line in self.response:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))

    def leave(self) -> None:
        """Closes the connection in the middle of the stream."""
        self.response.close()
        self.connection.close()


def cause(front: Front) -> str:
    """The first line of the termination message."""
    return front.termination_log.read_text().splitlines()[0]


def test_until_ready_probes_and_api_say_so(own_front: Start) -> None:
    front = own_front(script="hang", ready=False)
    front.eventually("the engine loads", lambda: front.get("/warmup").json()["stages"] == [])
    assert front.get("/livez").status_code == 200
    assert (front.get("/startupz").status_code, front.get("/readyz").status_code) == (503, 503)
    refused = front.post("/v1/completions", ENDLESS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
    asleep = httpx2.post(f"{front.admin}/sleep")
    assert (asleep.status_code, "warm-up: Loading" in asleep.text) == (503, True)
    assert int(refused.headers["retry-after"]) >= 1
    warmup = front.get("/warmup").json()
    assert (warmup["podUID"], warmup["state"], warmup["terminal"], warmup["failure"]) == (
        "uid-1",
        "Loading",
        False,
        None,
    )
    assert warmup["graph"]["prefill"]["sizes"] == {"planned": 3, "captured": 0, "failed": 0}
    assert front.metric("graphpod_warmup_state", state="Loading") == 1
    front.process.terminate()
    assert front.ended() == 0


def test_it_is_not_ready_while_graphs_are_compared_with_uncaptured_code(own_front: Start) -> None:
    front = own_front(script="check", ready=False)
    front.eventually("graphs are checked", lambda: front.get("/warmup").json()["state"] == "SelfChecking")
    for path in ("/startupz", "/readyz"):
        answer = front.get(path)
        assert (answer.status_code, answer.text) == (503, "warm-up: SelfChecking\n")
    refused = front.post("/v1/completions", ENDLESS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
    assert "SelfChecking" in refused.json()["error"]["message"]


def test_a_stream_opens_before_its_first_token_and_comments_keep_it_open(own_front: Start) -> None:
    front = own_front(script="stick", idle_seconds=0.05)
    stream = Stream(front)  # its status line has come; a token never will
    assert stream.response.headers["content-type"].startswith("text/event-stream")
    lines = [stream.response.readline() for _ in range(4)]
    assert lines == [b": waiting for tokens\n", b"\n"] * 2
    os.kill(front.engine_pid(), signal.SIGKILL)
    *_, last = stream.events()
    assert last["error"]["code"] == "engine_error"
    assert "SIGKILL" in last["error"]["message"]
    id = stream.response.headers["x-request-id"]
    assert f"stream {id} ended with an error: code=engine_error" in front.log.read_text()
    assert front.ended() == ExitCode.EngineDied


def test_ready_shows_everywhere_and_names_the_configuration(front: Front) -> None:
    warmup = front.get("/warmup").json()
    assert (warmup["state"], warmup["terminal"], len(warmup["configHash"])) == ("Ready", True, 10)
    assert warmup["kv"]["tokens"] == warmup["kv"]["pages"] * warmup["kv"]["pageSize"] > 0
    for path in ("/livez", "/startupz", "/readyz"):
        assert front.get(path).status_code == 200
    assert front.metric("graphpod_warmup_state", state="Ready") == front.metric("graphpod_warmup_progress_ratio") == 1


def test_a_client_that_leaves_frees_its_pages_and_counts_as_abort(front: Front) -> None:
    before = front.metric("graphpod_requests_total", finish_reason="abort")
    stream = Stream(front)
    next(stream.events())
    front.eventually("it holds pages", lambda: front.metric("graphpod_kv_cache_usage_ratio") > 0)
    stream.leave()
    front.eventually(
        "the request is counted as abort",
        lambda: front.metric("graphpod_requests_total", finish_reason="abort") == before + 1,
    )
    front.eventually("its pages are free", lambda: front.metric("graphpod_kv_cache_usage_ratio") == 0)
    assert front.metric("graphpod_requests_running") == 0


def test_a_client_that_does_not_wait_for_a_whole_answer_frees_its_pages(front: Front) -> None:
    before = front.metric("graphpod_requests_total", finish_reason="abort")
    address = urlsplit(front.http)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request("POST", "/v1/completions", json.dumps(ENDLESS), JSON)
    front.eventually("it holds pages", lambda: front.metric("graphpod_kv_cache_usage_ratio") > 0)
    connection.close()
    front.eventually(
        "the request is counted as abort",
        lambda: front.metric("graphpod_requests_total", finish_reason="abort") == before + 1,
    )
    front.eventually("its pages are free", lambda: front.metric("graphpod_kv_cache_usage_ratio") == 0)


def test_a_full_queue_answers_503_and_takes_requests_again(own_front: Start) -> None:
    front = own_front(max_batch=1, serving=ServingConfig(max_queue=0))
    stream = Stream(front)
    next(stream.events())
    full = front.post("/v1/completions", ENDLESS)
    assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
    assert full.headers["retry-after"] == "1"
    assert front.metric("graphpod_requests_total", finish_reason="rejected") == 1
    stream.leave()
    front.eventually("there is room", lambda: front.metric("graphpod_requests_running") == 0)
    assert front.post("/v1/completions", {"model": "echo", "prompt": "ab"}).status_code == 200


def test_many_requests_at_once_are_all_answered(front: Front) -> None:
    def ask(number: int) -> bool:
        text = f"question {number} " * (number % 5 + 1)
        reply = front.client().chat.completions.create(model="echo", messages=[{"role": "user", "content": text}])
        return reply.choices[0].message.content == text

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(24)))


def test_a_drain_serves_then_refuses_then_ends_with_0(own_front: Start) -> None:
    front = own_front(accept_seconds=4.0)
    stream = Stream(front, max_tokens=2_500)
    events = stream.events()
    next(events)
    front.process.terminate()
    front.eventually("not ready", lambda: front.get("/readyz").status_code == 503)
    assert front.get("/livez").status_code == 200
    late = front.post("/v1/completions", {"model": "echo", "prompt": "late"})
    assert (late.status_code, late.headers["connection"]) == (200, "close")
    *_, last = events
    assert last["choices"][0]["finish_reason"] == "length"
    assert front.ended() == ExitCode.Drained, front.log.read_text()
    with pytest.raises(openai.APIConnectionError):
        front.client().models.list()
    assert not front.termination_log.exists()


def test_what_is_not_done_at_the_deadline_is_cut_with_a_reason(own_front: Start) -> None:
    front = own_front(serving=ServingConfig(max_queue=4, drain_seconds=1))
    stream = Stream(front)
    events = stream.events()
    next(events)
    front.process.terminate()
    *_, last = events
    assert "shutting down" in last["error"]["message"]
    assert front.ended() == ExitCode.Drained, front.log.read_text()


def test_a_killed_engine_fails_open_streams_and_ends_the_pod_with_its_cause(own_front: Start) -> None:
    front = own_front()
    stream = Stream(front)
    events = stream.events()
    next(events)
    os.kill(front.engine_pid(), signal.SIGKILL)
    *_, last = events
    assert last["error"]["code"] == "engine_error"
    assert "SIGKILL" in last["error"]["message"]
    assert front.ended() == ExitCode.EngineDied
    assert cause(front).startswith("EngineDied: the engine process")


def test_an_engine_that_fails_in_a_pass_says_why(own_front: Start) -> None:
    front = own_front(script="raise")
    response = front.post("/v1/completions", {"model": "echo", "prompt": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_error")
    assert front.ended() == ExitCode.EngineDied
    assert cause(front) == "EngineDied: RuntimeError: the device fell off the bus"
    assert "Traceback" in front.log.read_text()


def test_a_start_that_is_slow_and_goes_on_is_not_ended(own_front: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    front = own_front(script="slow", stuck_seconds=2.0)
    monkeypatch.setattr(watchdog, "FLOOR_SECONDS", 2.0)
    plan = EngineConfig.parse(front.log.with_name("engine.json").read_bytes()).resolved()
    limit = watchdog.Watchdog(plan).limits["Capturing"]
    assert SLOW_STEPS * SLOW_SECONDS > 2 * limit > 8 * SLOW_SECONDS
    assert front.get("/readyz").status_code == 200


def test_a_start_that_is_told_to_end_says_where_it_was_and_for_how_long(own_front: Start) -> None:
    front = own_front(script="hang", ready=False)
    front.eventually("the engine loads", lambda: front.get("/warmup").json()["stages"] == [])
    front.process.terminate()
    assert front.ended() == 0
    assert re.fullmatch(r"Drained: stopped before Ready, at Loading \d+ s after the start", cause(front))


def test_a_pass_that_never_ends_is_stuck_and_its_stack_is_in_the_log(own_front: Start) -> None:
    front = own_front(script="stick", stuck_seconds=5.0)
    response = front.post("/v1/completions", {"model": "echo", "prompt": "x"})
    assert response.status_code == 500
    assert "no progress at Ready" in response.json()["error"]["message"]
    assert front.ended() == ExitCode.Stuck
    assert cause(front).startswith("Stuck: no progress at Ready")
    assert "in launch" in front.log.read_text()


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("fail", ExitCode.CaptureFailed, "CaptureFailed: prefill size 8: injected; lower the ladder"),
        ("crash", ExitCode.EngineDied, "EngineDied: the engine process"),
        ("segfault", ExitCode.CaptureFailed, "CaptureFailed: while capturing decode: the engine process"),
    ],
)
def test_a_failed_start_ends_with_its_code_and_cause(own_front: Start, script: str, code: ExitCode, words: str) -> None:
    front = own_front(script=script, ready=False)
    assert front.ended() == code, front.log.read_text()
    assert cause(front).startswith(words)


def test_a_folder_without_a_tokenizer_is_an_invalid_model(own_front: Start, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    front = own_front(ready=False, model=tmp_path / "empty")
    assert front.ended() == ExitCode.ModelInvalid
    assert "tokenizer.json is missing" in cause(front)


def wire_of(front: Front) -> Path:
    """The folder of the sockets between front and engine."""
    fds: list[str] = []
    for fd in Path(f"/proc/{front.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed since
            fds.append(fd.readlink().name)
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    (folder,) = {Path(words[7]).parent for words in sockets if len(words) == 8 and f"socket:[{words[6]}]" in fds}
    return folder


def test_the_engine_goes_when_the_front_is_killed_and_leaves_no_folder(own_front: Start) -> None:
    front = own_front()
    engine = Path(f"/proc/{front.engine_pid()}/cmdline")
    wire = wire_of(front)
    assert wire.is_dir()
    front.process.kill()
    front.process.wait()
    # A dead process that nobody has reaped yet has an empty command line.
    eventually("the engine ends", lambda: not engine.exists() or not engine.read_bytes(), front.log)
    assert not wire.exists()

"""The client's end of a wire whose engine has ended."""

import threading
from pathlib import Path

import pytest

from graphpod_runtime.bench import wire_client
from graphpod_runtime.bench.wire_client import WireClient
from graphpod_runtime.wire.messages import Drain, Finished, FinishReason, Submit, Tokens
from graphpod_runtime.wire.socket import WIRE, EngineEnd


class Ended(Exception):
    """The engine's process is gone."""


def gone() -> None:
    raise Ended


@pytest.fixture(autouse=True)
def checks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_client, "CHECK_SECONDS", 0.01)


def test_an_engine_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(Ended), WireClient(tmp_path, gone) as client:
        client.generate([[1, 2]], 1)


def engine(folder: Path, reason: FinishReason, orders: list[object]) -> threading.Thread:
    """Answers one frame of requests with two tokens each, then waits to be drained."""

    def serve() -> None:
        end = EngineEnd(folder, WIRE)
        while not any(isinstance(order, Drain) for order in orders):
            came = end.poll(0.05)
            orders.extend(came)
            for order in came:
                if isinstance(order, Submit):
                    end.send([Tokens(order.id, [1])])
                    end.send([Tokens(order.id, [2]), Finished(order.id, reason)])
            if reason is FinishReason.Error and came:
                break
        end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_requests_are_sent_together_and_awaited_to_their_end(tmp_path: Path) -> None:
    orders: list[object] = []
    with WireClient(tmp_path, lambda: None) as client:
        thread = engine(tmp_path, FinishReason.Length, orders)
        client.generate([[1, 2], [3, 4]], 2)
    thread.join()
    assert orders == [Submit("0", [1, 2], 2, ignore_eos=True), Submit("1", [3, 4], 2, ignore_eos=True), Drain()]


def test_a_request_that_ends_otherwise_is_an_error(tmp_path: Path) -> None:
    with WireClient(tmp_path, lambda: None) as client:
        thread = engine(tmp_path, FinishReason.Error, [])
        with pytest.raises(RuntimeError, match="the engine ended a request with error"):
            client.generate([[1, 2]], 2)
    thread.join()

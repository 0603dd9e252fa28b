"""What the front knows of the engine's limits before and after the engine has derived them."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from graphpod_policy import ServingConfig, limits
from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.server_info import ServerInfo
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.watchdog import Watchdog
from graphpod_runtime.wire.report import ServedLimits, State

from .conftest import engine_json, first_status


def status(folder: Path, **changes: Any) -> Status:
    return first_status(engine_json(folder, folder, **changes))


@pytest.mark.parametrize(("kv_tokens", "context"), [(4_000_000, 40960), (1024, 1024)])
def test_requests_are_held_to_what_the_engine_derived(tmp_path: Path, kv_tokens: int, context: int) -> None:
    subject = status(tmp_path, max_model_len=None, max_batch=None)
    assert (subject.context_tokens, subject.batch) == (limits.SMALL_CONTEXT, limits.CPU_BATCH)
    derived = ServedLimits(40960, 256, ("maxModelLen", "maxBatch")).as_dict()
    subject.update(subject.report | {"limits": derived, "kv": {"tokens": kv_tokens}})
    assert (subject.context_tokens, subject.batch) == (context, 256)
    assert subject.warmup()["limits"] == {"maxModelLen": 40960, "maxBatch": 256, "auto": ["maxModelLen", "maxBatch"]}


def test_what_the_configuration_says_is_known_at_once(tmp_path: Path) -> None:
    subject = status(tmp_path, max_model_len=300, max_batch=5)
    assert (subject.context_tokens, subject.batch) == (300, 5)


@pytest.mark.parametrize("state", State)
def test_the_front_is_ready_once_the_engine_is_and_no_earlier(tmp_path: Path, state: State) -> None:
    subject = status(tmp_path)
    subject.engine_alive = True
    subject.loaded()
    subject.update(subject.report | {"state": state.value})
    assert subject.ready is (state is State.Ready)
    assert (subject.started_at is not None) is subject.ready


async def test_probes_of_a_server_whose_engine_died_do_not_say_that_it_is_ready(tmp_path: Path) -> None:
    """The front ends a moment later. Until then whoever asks learns why."""
    subject = status(tmp_path)
    subject.engine_alive = True
    subject.loaded()
    subject.update(subject.report | {"state": State.Ready.value})
    subject.engine_alive = False
    exporter = Exporter(FrontMetrics("echo"), subject)
    app = admin_app(subject, Watchdog(subject.config.resolved()), exporter)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://admin") as admin:
        answer = await admin.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "the engine has died\n")
    health = await ServerInfo(subject, exporter).answer({"type": "http", "path": "/health", "method": "GET"})
    assert isinstance(health, ApiError)
    assert health.message == "The model is not ready (the engine has died)."


def test_when_a_start_ended_is_known_once_the_front_can_answer_and_does_not_change(tmp_path: Path) -> None:
    subject = status(tmp_path)
    subject.update(subject.report | {"state": State.Ready.value})
    assert subject.started_at is None
    subject.loaded()
    ended = subject.started_at
    subject.update(dict(subject.report))
    assert ended is not None
    assert subject.started_at == ended


def test_open_prompts_may_hold_the_kv_cache_as_often_as_requests_are_open_for_each_that_runs(tmp_path: Path) -> None:
    subject = status(tmp_path, max_model_len=300, max_batch=8, serving=ServingConfig(max_queue=16))
    assert subject.open_tokens == 3 * 8 * 300, "before the KV cache is known"
    subject.update(subject.report | {"kv": {"tokens": 1000}})
    assert subject.open_tokens == 3000

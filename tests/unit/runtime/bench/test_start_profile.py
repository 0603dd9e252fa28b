"""Where the seconds of a start went, of a log and samples as an engine's are."""

import json
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.start_profile.sampler import STOP, Sampler, labelled, name_of, run
from benchmarks.start_profile.stages import Stretch, stretches
from benchmarks.start_profile.tree import profiles

LOG = """\
2026-11-27 10:00:04,500 graphpod.engine INFO Import: 3.0 s
2026-11-27 10:00:06,500 graphpod.engine INFO weights of chat: 16.00 GB in 1.90 s, 8.42 GB/s
Traceback (most recent call last):
2026-11-27 10:00:06,500 graphpod.engine INFO Load: 2.0 s
2026-11-27 10:00:08,000 graphpod.front INFO ready: chat
"""
BEGAN = datetime(2026, 11, 27, 10, 0, 1).astimezone().timestamp()


def test_a_start_is_its_stages_and_what_lies_between_them() -> None:
    found = stretches(LOG, {"Import": 3.0, "Load": 1.98, "Later": 1.0}, BEGAN, BEGAN + 7)
    assert [(each.name, round(each.began - BEGAN, 2), round(each.seconds, 2)) for each in found] == [
        ("between start and Import", 0, 0.5),
        ("Import", 0.5, 3.0),
        ("Load", 3.52, 1.98),
        ("between Load and Ready", 5.5, 1.5),
    ]


def test_a_profile_shows_what_took_long_and_leaves_out_threads_that_wait() -> None:
    stacks = [["a.py main", "b.py read", "c.py copy"], ["a.py main", "b.py read", "c.py wait_for"], ["t.py wait"]]
    stacks.append(["t.py run", "t.py work"])
    samples: list[Any] = [[at / 10 + 0.1, 0.1, 0.02, [["main", at % 2], ["idle", 2], ["aside", 3]]] for at in range(10)]
    samples.append([1.1, 0.1, 0.1, [["main", 3]]])  # of another stretch
    [found] = profiles({"stacks": stacks, "samples": samples}, [Stretch("Load", 0, 1), Stretch("Buffers", 5, 6)])
    assert list(found.text()) == [
        "Load: 1.00 s, 0.20 s of it on a processor",
        "    1.00 s  a.py main > b.py read",
        "      0.50 s  c.py copy",
        "      0.50 s  c.py wait_for",
        "    meanwhile 1.00 s  aside: t.py work",
    ]
    assert found.as_dict()["main"]["calls"]["a.py main"]["calls"]["b.py read"]["calls"].keys() == {
        "c.py copy",
        "c.py wait_for",
    }


def test_front_and_engine_are_sampled_and_nothing_else() -> None:
    assert name_of(["python", "-m", "graphpod_runtime.cli", "serve"]) == "front"
    assert name_of(["python", "-P", "-m", "graphpod_runtime.engine.process", "--wire", "x"]) == "engine"
    assert name_of(["python", "-m", "torch._inductor.compile_worker"]) is None
    assert name_of(["graphpod_runtime.cli"]) is None


def test_a_sample_has_the_calls_of_every_thread_and_all_time_since_the_last(tmp_path: Path) -> None:
    go, entered = threading.Event(), threading.Event()

    def held() -> None:
        entered.set()
        go.wait()

    threading.Thread(target=held, name="holding").start()
    entered.wait()
    began = time.time()
    sampler = Sampler()
    aside = threading.Thread(target=lambda: (sampler.note(), sampler.note()))
    aside.start()
    aside.join()
    go.set()
    content = sampler.content()
    (when, *_), (later, seconds, _, threads) = content["samples"]
    assert began <= when <= later
    assert seconds == pytest.approx(later - when)
    calls = {name: content["stacks"][number] for name, number in threads}
    assert any(call.endswith(" held") for call in calls["holding"])
    assert any(call.endswith(test_a_sample_has_the_calls_of_every_thread_and_all_time_since_the_last.__name__)
               for call in calls["main"])  # fmt: skip


def test_samples_are_written_when_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / STOP).touch()
    run(tmp_path, "engine")
    assert json.loads((tmp_path / "engine.json").read_text()) == {"stacks": [], "samples": []}


def test_calls_that_lead_to_others_have_no_label() -> None:
    def code(name: str, file: str) -> Any:
        return compile("", file, "exec").replace(co_name=name)

    called = code("_call_impl", "/lib/torch/nn/modules/module.py"), 3
    imported = code("_find_and_load", "<frozen importlib._bootstrap>"), 5
    ours = code("forward", "/site/graphpod_runtime/models/decoder.py"), 7
    assert labelled((called, imported, ours)) == ["decoder.py:7 forward"]
    assert labelled((ours, called)) == ["decoder.py:7 forward", "modules/module.py _call_impl"]

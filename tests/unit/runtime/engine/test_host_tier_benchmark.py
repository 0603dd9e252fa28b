"""The benchmark of the host tier, with a tiny model on this machine's CPU."""

import json
from pathlib import Path

from benchmarks.host_tier import PAGE, Workload, run
from graphpod_policy import CompileMode, Device
from truth.models import small


def test_every_prefix_is_computed_once_and_then_loaded(tmp_path: Path) -> None:
    folder = small("Qwen3ForCausalLM").folder(tmp_path)
    work = Workload(folder, Device.Cpu, "float32", CompileMode.Nothing, 256, 64, 1, 2, 2, always=True)
    found = run(work)
    assert found["alone"]["loadedPages"] == found["decode"]["loadedPages"] == work.rounds * work.prefix // PAGE
    assert found["decode"]["loadingSteps"] == work.rounds, "the turn that launches a load of few bytes, for each"
    assert found["compared"]["ttft"] == found["alone"]["hitSeconds"] / found["alone"]["computedSeconds"]
    assert not any(found["failures"].values())
    assert json.loads(json.dumps(found)) == found

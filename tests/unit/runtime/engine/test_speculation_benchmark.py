"""The benchmark of speculative decoding, with a tiny model on this machine's CPU."""

import json
from pathlib import Path

from benchmarks.speculation import Workload, run
from graphpod_policy import CompileMode, Device
from truth.models import small


def test_every_method_is_measured_at_the_acceptance_that_is_set(tmp_path: Path) -> None:
    folder = small("Qwen3ForCausalLM").folder(tmp_path)
    found = run(Workload(folder, folder, Device.Cpu, "float32", CompileMode.Nothing, 3, 1.0, 65, 8 << 20))
    assert list(found["rows"]) == ["plain", "Ngram", "DraftModel"]
    for method in ("Ngram", "DraftModel"):
        row = found["rows"][method]
        assert row["acceptedShare"] == 1
        assert row["tokensPerPass"] == 4
        assert row["draftSeconds"] > 0
        times = row["graphSeconds"] + row["draftSeconds"]
        assert found["compared"][method]["ideal"] == 4 * found["rows"]["plain"]["graphSeconds"] / times
    assert json.loads(json.dumps(found)) == found

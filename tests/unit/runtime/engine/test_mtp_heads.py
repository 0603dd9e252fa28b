"""MTP layers of a checkpoint draft for its model: no text changes, and drafts are those of the published code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from graphpod_policy import ExitCode, Policy, SpeculativeMethod
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import random_prompts, write_llama
from tests.unit.runtime.engine.test_draft_heads import assert_texts_stay, assert_waves_stay, recorded_drafts
from tests.unit.runtime.engine.test_speculation import POLICIES
from tests.unit.runtime.mimo import HEAD, drafts_by_mimo, write_mimo

Start = Callable[..., Runner]
MTP: dict[str, Any] = {"speculative": SpeculativeMethod.Mtp, "speculative_max_batch": 8}


@pytest.fixture(scope="module")
def mimo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer, which its MTP layer can repeat but for the first token of a text."""
    return write_mimo(tmp_path_factory.mktemp("mimo"))


@pytest.mark.parametrize(
    ("policies", "kind"), [(POLICIES[0], "greedy"), (POLICIES[1], "greedy"), (POLICIES[1], "drawn")]
)
def test_texts_are_those_without_drafts(started: Start, mimo: Path, policies: tuple[Policy, Policy], kind: str) -> None:
    assert_texts_stay(started, mimo, policies, kind, MTP)


def test_texts_are_those_without_trees(started: Start, mimo: Path) -> None:
    assert_texts_stay(started, mimo, POLICIES[0], "greedy", MTP | {"speculative_topk": 2})


@pytest.mark.parametrize(("kind", "kv_cache_bytes"), [("drawn", 8 << 20), ("greedy", 230 << 10)])
def test_prefix_hits_chunk_tails_and_preemptions(
    started: Start, mimo: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kv_cache_bytes: int
) -> None:
    assert_waves_stay(started, monkeypatch, mimo, kind, kv_cache_bytes, MTP)


@pytest.mark.parametrize("decode", [Policy.Disabled, Policy.Full])
def test_drafts_are_those_of_the_published_code(started: Start, tmp_path: Path, decode: Policy) -> None:
    """Of a model of three layers whose states it sees, over those of what was verified and over own predictions."""
    folder = write_mimo(tmp_path, layers=3, seen=0.3)
    runner = started(Policy.Breakable, decode, folder=folder, **MTP)
    assert runner.report.drafts is not None
    assert runner.report.drafts.model is None
    made = recorded_drafts(runner)
    (prompt,) = random_prompts(1, shortest=30)
    (answer,) = answers(runner, [prompt], 12, ignore_eos=True)
    text = [*prompt, *answer.tokens]
    checked = [drafts == drafts_by_mimo(folder, text[:at], 3) for at, drafts in made if at + 3 < len(text)]
    assert len(checked) > 2
    assert all(checked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_nextn_predict_layers": 2}, "num_nextn_predict_layers=2: only checkpoints with 1 MTP layer are built"),
        ({"num_nextn_predict_layers": None}, "num_nextn_predict_layers=None: only checkpoints with 1 MTP layer"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "MTP layers of 'Qwen2ForCausalLM' are not built; only those of MiMo"),
        ({"use_sliding_window": True, "sliding_window": 64}, "use_sliding_window next to MTP layers is not built"),
    ],
)
def test_checkpoints_without_such_a_layer_are_refused(
    started: Start, mimo: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(mimo, folder)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(StartFailure, match=words) as caught:
        started(folder=folder, **MTP)
    assert caught.value.code is ExitCode.ModelUnsupported
    assert "spec.engine.speculative.method: Mtp" in str(caught.value)
    assert "use Ngram" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("input_proj.weight", None, r"1 of 16 tensors are missing, first model\.mtp_layers\.0\.input_proj"),
        (
            "input_proj.weight",
            95,
            r"mtp_layers\.0\.input_proj\.weight has shape \[95, 192\], config.json says \[96, 192\]",
        ),
    ],
)
def test_a_layer_of_other_shapes_is_refused(
    started: Start, mimo: Path, tmp_path: Path, name: str, rows: int | None, words: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(mimo, folder)
    tensors = load_file(folder / "model.safetensors")
    tensor = tensors.pop(f"{HEAD}{name}")
    if rows is not None:
        tensors[f"{HEAD}{name}"] = tensor[:rows].contiguous()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(StartFailure, match=words) as caught:
        started(folder=folder, **MTP)
    assert caught.value.code is ExitCode.ModelInvalid
    assert "spec.engine.speculative.method: Mtp" in str(caught.value)


def test_another_model_has_no_such_layer(started: Start, tmp_path: Path) -> None:
    with pytest.raises(StartFailure, match="MTP layers of 'LlamaForCausalLM' are not built"):
        started(folder=write_llama(tmp_path), **MTP)

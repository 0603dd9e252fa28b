"""What the loader asks for of a streamed checkpoint is all that a rank's weights are made of: the rest is no number."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import ModelFacts, Policy
from graphpod_policy.start.footprint import read_bytes
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models import loader
from graphpod_runtime.models.checkpoint import tensors
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import engine_config, write_llama
from tests.unit.runtime.models.fp8_checkpoints import FORMATS, quantize
from truth.families.tiny import tiny
from truth.families.trial import written

VOCABULARY = 208
"""Of which four ranks have equal parts."""
WIDE: dict[str, Any] = {"heads": 16, "kv_heads": 16, "intermediate_size": 256, "vocab_size": VOCABULARY}
EXPERTS = {"num_experts": 6, "num_local_experts": 6}
TWO = {"ranks": 2}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "heads of keys that ranks share": ("qwen3", {"num_attention_heads": 8, "num_key_value_heads": 1}, {"ranks": 4}),
    "biases": ("qwen2", {}, TWO),
    "a head of its own": ("qwen3", {"tie_word_embeddings": False}, TWO),
    "a tied head in the last stage": ("qwen3", {"tie_word_embeddings": True}, {"ranks": 2, "stages": 2}),
    "a norm over all heads": ("olmo2", {}, TWO),
    "plain weights that become FP8": ("qwen3", {}, TWO | {"quantize": True}),
    "columns of each expert": ("qwen2_moe", EXPERTS, TWO),
    "some experts": ("qwen3_moe", EXPERTS, TWO | {"expert_groups": 2}),
    "some columns of some experts": ("mixtral", EXPERTS, {"ranks": 4, "expert_groups": 2}),
    "stacks of experts": ("granitemoe", EXPERTS, TWO | {"expert_groups": 2}),
    "queries, keys and values in one": ("phi3", {}, {}),
    "parts of queries, keys and values in one": ("phi3", {"num_key_value_heads": 1}, {"ranks": 4}),
    "parts of gate and up in one, and of turned pairs": ("glm4", {}, TWO),
    "heads with norms of their own": ("cohere", {"use_qk_norm": True}, TWO),
    "fused matrices that become FP8": ("phi3", {}, TWO | {"quantize": True}),
    "heads over latents": ("deepseek_v2", {}, {"ranks": 4}),
    "heads over latents, without one of queries": ("deepseek_v2", {"q_lora_rank": None}, TWO),
    "gate and up in one, and turned pairs": ("glm4", {}, {"stages": 2}),
    "latents": ("deepseek_v2", {}, {}),
}
"""By what is special: a model type, what its configuration changes, and what the loader is to give."""
CHECKPOINTS = ("blocks", "one scale, static", "compressed, channels", "compressed, blocks")


def streamed_as(monkeypatch: pytest.MonkeyPatch, read: list[int]) -> None:
    """Folders are read as if they were streamed, but for the source; `read` gets the bytes of each load."""

    def outlines(folder: Path, keep: Callable[[str], bool]) -> Iterator[tuple[Path, str, Tensor]]:
        for file, name, tensor in tensors(folder, keep):
            yield file, name, torch.empty_like(tensor, device="meta")

    def content(folder: Path, wanted: Mapping[str, Sequence[tuple[int, int]]], *_: Any) -> Iterator[Any]:
        read.append(0)
        for file, name, tensor in tensors(folder):
            if name in wanted:
                given = tensor.contiguous().flatten().view(torch.uint8)
                got = torch.full_like(given, 0xFF)
                for start, end in wanted[name]:
                    got[start:end] = given[start:end]
                    read[-1] += end - start
                yield file, name, got.view(tensor.dtype).view(tensor.shape)

    monkeypatch.setattr(loader, "is_streamed", lambda _: True)
    monkeypatch.setattr(loader, "outlines", outlines)
    monkeypatch.setattr(loader, "streamed_tensors", content)


def parts(folder: Path, **given: Any) -> Iterator[dict[str, Tensor]]:
    """The weights of each rank of each stage."""
    for stage in range(given.get("stages", 1)):
        for rank in range(given.get("ranks", 1)):
            model = load_model(folder, torch.float32, 64, HOST, rank=rank, stage=stage, **given)
            found = dict(model.module().state_dict())
            if model.shape.stage is not None and not model.shape.stage.ends:
                del found["norm.weight"]  # nothing fills what another stage has
            yield found


def compared(folder: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> int:
    """Each part is that of the folder, and ranks read less than the whole. Returns what all of them read together."""
    wanted, read = list(parts(folder, **given)), list[int]()
    with monkeypatch.context() as patch:
        streamed_as(patch, read)
        found = list(parts(folder, **given))
    assert len(found) == len(wanted) == len(read)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []
    whole = sum(tensor.nbytes for _, _, tensor in tensors(folder))
    assert max(read) <= whole
    assert max(read) < whole or len(read) == 1
    return sum(read)


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_a_family_is_made_of_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model_type, changes, given = CASES[name]
    written(tiny(model_type, vocab_size=VOCABULARY, **changes), tmp_path)
    compared(tmp_path, monkeypatch, **given)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("changes", [{}, {"q_lora_rank": None}])
def test_what_ranks_read_of_heads_over_latents_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], ranks: int
) -> None:
    """But for norms and routers."""
    written(tiny("deepseek_v2", vocab_size=VOCABULARY, **changes), tmp_path)
    facts = ModelFacts.of(json.loads((tmp_path / "config.json").read_bytes()))
    asked = engine_config(tmp_path, Policy.Disabled, Policy.Disabled, tensor=ranks)
    found = compared(tmp_path, monkeypatch, ranks=ranks)
    assert found == pytest.approx(2 * read_bytes(asked, facts), rel=0.02)  # the folder has 32 bits


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_part_of_an_fp8_checkpoint_is_made_of_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_llama(tmp_path, num_hidden_layers=2, **WIDE)
    quantize(tmp_path, FORMATS[name])
    compared(tmp_path, monkeypatch, ranks=2)

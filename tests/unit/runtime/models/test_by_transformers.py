"""Models that transformers computes: answers on our pages and graphs are its own; what cannot be is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from graphpod_policy import ModelFacts
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.models.by_transformers import weights
from graphpod_runtime.models.by_transformers.attention_call import AttentionCall
from graphpod_runtime.models.by_transformers.layout import Layout
from graphpod_runtime.models.by_transformers.masks import Mask, Masks, mask_of
from graphpod_runtime.models.by_transformers.model import transformers_model
from graphpod_runtime.models.by_transformers.parts import Parts
from graphpod_runtime.models.by_transformers.positions import Positions
from graphpod_runtime.models.by_transformers.rehearsal import watched
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.random import random_model
from truth.families.tiny import tiny
from truth.families.trial import STEPS, TAILS, tried

ROWS = 10
"""Sequences of a trial: a batch of eight, and two that begin with a cached prefix."""
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2, scaled by layer, head of its own": (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
    ),
    "opt, norms behind, projected words": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "ernie4_5_moe, one expert": ("ernie4_5_moe", {"moe_k": 1, "num_key_value_heads": 1}),
    "vaultgemma, capped scores": ("vaultgemma", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gpt_oss, sinks": ("gpt_oss", {"sliding_window": 6}),
    "bart, positions counted from its cache": ("bart", {}),
    "roberta, positions that leave padding out": ("roberta", {"pad_token_id": 1}),
    "glm_moe_dsa, chosen keys": ("glm_moe_dsa", {"index_topk": 128}),
    "got_ocr2, a decoder that is handed what its head takes": ("got_ocr2", {}),
}
"""`make families` runs every model type."""


@pytest.mark.parametrize("case", ODD)
def test_answers_are_those_of_transformers_one_at_a_time(case: str, tmp_path: Path) -> None:
    model_type, changes = ODD[case]
    folder = tmp_path / model_type
    folder.mkdir()
    trial = tried(model_type, folder, **changes)
    assert (trial.outcome, trial.prefill, trial.decode) == ("Equal", "Breakable", "Full"), trial
    assert (trial.tokens, trial.fallbacks) == (ROWS * STEPS, 0)
    assert trial.replays > STEPS
    assert trial.prefix == len(TAILS) * 40


def written(folder: Path, model_type: str, **changes: Any) -> Path:
    """A random model of a small configuration."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(tiny(model_type, **changes)).save_pretrained(folder)
    return folder


def test_a_checkpoint_of_far_more_tensors_than_its_model_is_refused_before_they_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers took 30 s for 400 000 of them."""
    folder = written(tmp_path, "gpt2")
    monkeypatch.setattr(weights, "SPARE", 10)
    load_model(folder, torch.float32, 64)
    save_file({f"more.{at}": torch.zeros(1) for at in range(1000)}, folder / "more.safetensors")
    with pytest.raises(ModelInvalid, match=r"more\.safetensors: more than \d+ tensors, and config\.json is of a model"):
        load_model(folder, torch.float32, 64)


@pytest.mark.parametrize("vocab_size", [24, 64])
def test_a_proof_has_no_padding_in_its_text(vocab_size: int, tmp_path: Path) -> None:
    """Of a small vocabulary every token comes up, and the model's own count leaves out its padding."""
    folder = written(tmp_path, "xlm-roberta", vocab_size=vocab_size, pad_token_id=5)
    assert transformers_model(folder, torch.float32, 64).shape.vocab == vocab_size


def test_positions_before_a_text_are_none_that_it_can_have(tmp_path: Path) -> None:
    folder = written(tmp_path, "roberta", max_position_embeddings=90, pad_token_id=7)
    facts = ModelFacts.of(json.loads((folder / "config.json").read_bytes()))
    assert facts.max_position == transformers_model(folder, torch.float32, 64).shape.max_position == 82


def refused(folder: Path, kind: type[Exception] = ModelUnsupported, length: int = 64) -> str:
    with pytest.raises(kind) as error:
        transformers_model(folder, torch.float32, length)
    return str(error.value)


@pytest.mark.parametrize(
    ("model_type", "changes", "words"),
    [
        ("lfm2", {}, "tokens see each other outside of attention, in layers.0.conv"),
        ("granitemoeshared", {"attention_multiplier": 0.0}, "multiplies scores by 0"),
        ("mamba", {}, "calls no attention through transformers' interface"),
        ("bert", {"is_decoder": False}, "attends by a mask that is not causal"),
        ("llama4_text", {"attention_chunk_size": 16}, "cuts a text into chunks"),
        ("gpt_neo", {}, "its own attention calls where of its scores"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(
    model_type: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert words in refused(written(tmp_path, model_type, **changes))


def test_code_in_the_folder_is_never_run(tmp_path: Path) -> None:
    folder = written(tmp_path, "gpt2")
    path = folder / "config.json"
    whole = json.loads(path.read_bytes()) | {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    path.write_text(json.dumps(whole))
    (folder / "modeling.py").write_text("raise SystemExit('run')")
    assert "auto_map names code in the model's folder" in refused(folder)
    with pytest.raises(ModelUnsupported, match="auto_map"):
        load_model(folder, torch.float32, 64)


def test_pickled_weights_are_no_weights(tmp_path: Path) -> None:
    folder = written(tmp_path, "gpt2")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "no *.safetensors file" in refused(folder, ModelInvalid)


def test_weights_of_another_shape_and_missing_ones_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path, "gpt2")
    path = folder / "config.json"
    whole = json.loads(path.read_bytes())
    path.write_text(json.dumps(whole | {"n_layer": 3}))
    assert "tensors are missing, first transformer.h.2" in refused(folder, ModelInvalid)
    path.write_text(json.dumps(whole | {"n_layer": 1}))
    assert "have no place in the model, first transformer.h.1" in refused(folder, ModelInvalid)
    path.write_text(json.dumps(whole | {"n_embd": 32}))
    assert "the weights are not of this config.json" in refused(folder, ModelInvalid)


def test_positions_end_where_frequencies_would_grow(tmp_path: Path) -> None:
    factors = [1.0 + index / 8 for index in range(8)]
    rope = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors[::-1], "rope_theta": 10000.0}
    rope["original_max_position_embeddings"] = 48
    changes = {"rope_parameters": rope, "original_max_position_embeddings": 48}
    model = transformers_model(written(tmp_path, "phi3", **changes), torch.float32, 512)
    assert model.shape.max_position == 48


def test_positions_end_where_a_query_would_not_see_all_keys(tmp_path: Path) -> None:
    folder = written(tmp_path, "deepseek_v32", index_topk=48)
    assert transformers_model(folder, torch.float32, 512).shape.max_position == 48
    assert ModelFacts.of(json.loads((folder / "config.json").read_bytes())).max_position == 48


@pytest.mark.parametrize(("kind", "positions"), [("block_sparse", 28), ("original_full", 96)])
def test_positions_end_where_a_query_would_see_blocks_of_a_text(kind: str, positions: int, tmp_path: Path) -> None:
    changes = {"attention_type": kind, "block_size": 4, "num_random_blocks": 1, "max_position_embeddings": 96}
    folder = written(tmp_path, "big_bird", **changes)
    assert transformers_model(folder, torch.float32, 512).shape.max_position == positions
    assert ModelFacts.of(json.loads((folder / "config.json").read_bytes())).max_position == positions


def test_scores_in_single_precision_of_a_model_of_16_bits_are_proved(tmp_path: Path) -> None:
    assert transformers_model(written(tmp_path, "gptj"), torch.bfloat16, 64).shape.uncapturable == ""


def test_positions_that_leave_padding_out_are_those_of_transformers(tmp_path: Path) -> None:
    """A padding token that was generated has transformers' position for it, and moves no other, as with its cache."""
    parts = Parts(AutoModelForCausalLM.from_pretrained(written(tmp_path, "roberta", pad_token_id=5)))
    assert (parts.positions.first, parts.positions.padding) == (6, (5, 5))
    with parts.positions.arguments(torch.tensor([7, 5, 9]), torch.tensor([0, 4, 5])) as arguments:
        assert arguments["position_ids"].tolist() == [[6, 5, 11]]


def test_random_weights_of_a_config_json_are_always_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path, "stablelm")
    (folder / "model.safetensors").unlink()
    one, other = (random_model(folder, torch.float32, 64) for _ in range(2))
    for (name, left), (_, right) in zip(
        one.module().named_parameters(), other.module().named_parameters(), strict=True
    ):
        assert torch.equal(left, right), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_counts_positions_itself_is_refused_where_they_have_little_weight(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fiftieth of a word's: 16 bits round a row alone as far as that in another way than among others."""
    torch.manual_seed(0)
    whole = AutoModelForCausalLM.from_config(tiny("gpt2"))
    whole.transformer.wpe.weight.data.mul_(0.02)
    whole.save_pretrained(tmp_path)
    assert transformers_model(tmp_path, dtype, 64).shape.layers == 2
    arguments = Positions.arguments

    def counted(self: Positions, tokens: Tensor, positions: Tensor) -> Any:
        return arguments(self, tokens, torch.arange(positions.shape[0]))

    monkeypatch.setattr(Positions, "arguments", counted)
    with pytest.raises(ModelUnsupported, match="not on its own position alone"):
        transformers_model(tmp_path, dtype, 64)


@pytest.mark.parametrize(
    ("moved", "operator"),
    [
        (lambda: torch.ones(3).to("meta"), "aten::_to_copy"),
        (lambda: torch.empty(3, device="meta").copy_(torch.ones(3)), "aten::copy_"),
        (lambda: torch.ones(3).to(torch.float64), ""),
        (lambda: torch.ones(()).to("meta"), ""),
    ],
)
def test_copies_between_devices_are_noted_but_of_a_single_number(moved: Callable[[], Tensor], operator: str) -> None:
    """Phi-MoE makes its frequencies on the host in each pass. `meta` stands for a GPU."""
    noted: list[str] = []
    with watched(noted.append):
        moved()
    assert noted == ([f"copies a tensor from cpu to meta ({operator})"] if operator else [])


def causal(batch: Any, head: Any, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


@pytest.mark.parametrize(
    ("function", "mask"),
    [
        (causal, Mask()),
        (lambda b, h, q, k: (k <= q) & (k > q - 7), Mask(7)),
        (lambda b, h, q, k: (k <= q) & (k > q - 100), Mask()),
        (lambda b, h, q, k: (k <= q) & (k // 16 == q // 16), Mask(not_built="cuts a text into chunks")),
        (lambda b, h, q, k: (k <= q) & (k // 100 == q // 100), Mask()),
        (lambda b, h, q, k: (k <= q) & (k % 2 == q % 2), Mask(not_built="has gaps")),
        (lambda b, h, q, k: k >= 0, Mask(not_built="is not causal")),
        (lambda b, h, q, k: k < 0, Mask(not_built="is not causal")),
    ],
)
def test_a_mask_is_read_off_what_it_says_of_64_positions(function: Callable[..., Tensor], mask: Mask) -> None:
    assert mask_of(function, 64) == mask


def test_a_mask_that_holds_a_tensor_of_the_models_device_is_asked_there() -> None:
    """Llama-4's does. `meta` stands for a GPU, or for the host where the tensor is not."""
    asked: list[str] = []

    def windowed(held: torch.device) -> Callable[..., Tensor]:
        def seen(b: Any, h: Any, q: Tensor, k: Tensor) -> Tensor:
            asked.append(k.device.type)
            if k.device != held:
                raise RuntimeError("Expected all tensors to be on the same device")
            return (k <= q) & (k > q - 7)

        return seen

    host, other = torch.device("cpu"), torch.device("meta")
    assert mask_of(windowed(host), 64, (other, host)) == Mask(7)
    assert asked[:2] == ["meta", "cpu"]
    refused = mask_of(windowed(other), 64, (host,)).not_built
    assert refused == "depends on more than positions (Expected all tensors to be on the same device)"
    asked.clear()
    Masks(other, 64).marker(0, windowed(other))
    assert asked[:2] == ["cpu", "meta"]


def test_heads_of_unequal_layers_share_one_layout() -> None:
    calls = [
        AttentionCall(1, 4, 6, 6, 0.5, None, None, None),
        AttentionCall(2, 1, 4, 8, 0.25, None, None, torch.tensor([3.0, 5.0])),
    ]
    layout = Layout.of(calls)
    assert layout == Layout(kv_heads=2, group=4, width=8, scale=0.5)
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 8)
    rows = layout.queries(calls[1], q).view(3, 2, 4, 8)
    assert torch.equal(rows[:, :, 0, :4], q[0].transpose(0, 1) * 0.5)
    assert not rows[:, :, 1:].any()
    assert not rows[..., 4:].any()
    assert torch.equal(layout.keys(calls[1], v), v[0].transpose(0, 1))
    assert torch.equal(layout.keys(calls[1], k)[..., :4], k[0].transpose(0, 1))
    attended = torch.arange(3 * 2 * 4 * 8.0).view(3, -1)
    assert torch.equal(layout.result(calls[1], attended)[0], attended.view(3, 2, 4, 8)[:, :, 0])
    sinks = layout.sinks(calls[1])
    assert sinks is not None
    assert sinks.tolist() == [3.0, 0, 0, 0, 5.0, 0, 0, 0]

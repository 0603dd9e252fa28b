"""Mixtures of experts by our own layers: logits, policies, the shapes of checkpoints, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphpod_policy import CompileMode, ExitCode, ModelFacts, ModelPath, ModelUnreadable, Policy
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.buffers import Buffers
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.mlp.moved_weights import tipping_of
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.models.test_configurations import logits
from truth.families.tiny import tiny
from truth.families.trial import written

WINDOWED = {"use_sliding_window": True, "sliding_window": 6}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3}),
    "mixtral, one expert": ("mixtral", {"num_experts_per_tok": 1}),
    "qwen2_moe, a dense layer": ("qwen2_moe", {"mlp_only_layers": [0], "shared_expert_intermediate_size": 48}),
    "qwen2_moe, every other layer": ("qwen2_moe", {"decoder_sparse_step": 2, "norm_topk_prob": True}),
    "qwen2_moe, no biases": ("qwen2_moe", {"qkv_bias": False, "tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", {"head_dim": 24, "attention_bias": True}),
    "qwen3_moe, all experts": ("qwen3_moe", {"num_experts_per_tok": 4, "norm_topk_prob": True}),
    "olmoe": ("olmoe", {"norm_topk_prob": True}),
    "olmoe, cut values": ("olmoe", {"clip_qkv": 0.3, "num_experts_per_tok": 1}),
    "granitemoe": ("granitemoe", {"embedding_multiplier": 6.0, "residual_multiplier": 0.3, "logits_scaling": 3.0}),
    "rows of no multiple of 16 bytes": ("mixtral", {"intermediate_size": 50}),
}
"""Model types, and changes of their small configurations."""


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    model_type, changes = CASES[case]
    reference = written(tiny(model_type, **changes), tmp_path)
    reference.set_experts_implementation("eager")  # its own product takes no odd widths
    with torch.no_grad():
        expected = reference(torch.arange(3, 43)[None]).logits[0]
    found = logits(tmp_path)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    facts = ModelFacts.of(json.loads((tmp_path / "config.json").read_bytes()))
    assert (facts.path, facts.not_built) == (ModelPath.Native, None)


@pytest.mark.parametrize(
    ("model_type", "changes", "windows"),
    [
        ("qwen2_moe", {"max_window_layers": 1}, (6, None)),
        ("qwen2_moe", {"max_window_layers": 0}, ()),
        ("qwen3_moe", {}, (6, 6)),
    ],
)
def test_windows_are_those_of_transformers(
    model_type: str, changes: dict[str, Any], windows: tuple[int | None, ...], tmp_path: Path
) -> None:
    config = tiny(model_type, layer_types=None, **WINDOWED, **changes)
    config.architectures = [f"{'Qwen2' if model_type == 'qwen2_moe' else 'Qwen3'}MoeForCausalLM"]
    config.save_pretrained(tmp_path)
    assert read_shape(tmp_path).windows == windows
    path = tmp_path / "config.json"
    whole = json.loads(path.read_bytes())
    whole.pop("layer_types", None)  # files of their authors have none
    path.write_text(json.dumps(whole))
    assert read_shape(tmp_path).windows == windows


@pytest.fixture(scope="module")
def half_dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2-MoE of one dense layer and one of experts."""
    folder = tmp_path_factory.mktemp("mixture")
    written(tiny("qwen2_moe", mlp_only_layers=[0], num_experts=6), folder)
    return folder


@pytest.mark.parametrize(
    ("prefill", "decode", "compile"),
    [
        (Policy.Breakable, Policy.Full, CompileMode.Nothing),
        (Policy.Piecewise, Policy.Breakable, CompileMode.Nothing),
        (Policy.Breakable, Policy.Full, CompileMode.Inductor),
        (Policy.Piecewise, Policy.Full, CompileMode.Inductor),
    ],
)
@pytest.mark.usefixtures("as_written")
def test_graphs_give_the_tokens_of_the_code_they_hold(
    started: Callable[..., Runner], half_dense: Path, prefill: Policy, decode: Policy, compile: CompileMode
) -> None:
    prompts = [[token % 190 for token in prompt] for prompt in random_prompts(6)]
    wanted = generate(started(Policy.Disabled, Policy.Disabled, folder=half_dense), prompts, 6, ignore_eos=True)
    runner = started(prefill, decode, folder=half_dense, compile=compile)
    assert [runner.report.phases[phase].effective for phase in runner.report.phases] == [prefill, decode]
    assert generate(runner, prompts, 6, ignore_eos=True) == wanted
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


@pytest.mark.parametrize("model_type", ["mixtral", "qwen3_moe", "granitemoe"])
def test_stacks_of_experts_load_as_experts_by_themselves_do(model_type: str, tmp_path: Path) -> None:
    """As transformers keeps them in memory, and as it writes them where it is not asked for the original names."""
    written(tiny(model_type), tmp_path)
    wanted = logits(tmp_path)
    AutoModelForCausalLM.from_pretrained(tmp_path).save_pretrained(tmp_path, save_original_format=False)
    names = load_file(tmp_path / "model.safetensors")
    assert any(name.endswith("experts.gate_up_proj") for name in names)
    assert torch.equal(logits(tmp_path), wanted)


def test_a_missing_expert_and_one_too_many_are_named(tmp_path: Path) -> None:
    written(tiny("qwen3_moe"), tmp_path)
    file = tmp_path / "model.safetensors"
    whole = load_file(file)
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    save_file({key: value for key, value in whole.items() if key != name}, file, metadata={"format": "pt"})
    with pytest.raises(ModelInvalid, match=f"tensors are missing, first {name}"):
        load_model(tmp_path, torch.float32, 64)
    save_file(whole | {name.replace(".3.", ".4."): whole[name].clone()}, file, metadata={"format": "pt"})
    with pytest.raises(ModelInvalid, match=r"experts\.4\.up_proj\.weight has no place"):
        load_model(tmp_path, torch.float32, 64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok 9 of 4 experts"),
        ({"num_local_experts": 4000}, "4000 experts; a layer has 1 to 1023"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step 0"),
        ({"mlp_only_layers": 3}, "not iterable"),
    ],
)
def test_fields_without_a_usable_value_are_named(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    config = tiny("qwen3_moe")
    config.architectures = ["Qwen3MoeForCausalLM"]
    config.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    whole = json.loads(path.read_bytes())
    path.write_text(json.dumps(whole | changes))
    with pytest.raises(ModelInvalid, match=words):
        read_shape(tmp_path)
    with pytest.raises(ModelUnreadable, match=words):
        ModelFacts.of(whole | changes)


SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 199,
}  # fmt: skip
TOLD = "num_key_value_heads", "num_experts", "num_experts_per_tok", "max_position_embeddings", "rms_norm_eps"


@pytest.mark.parametrize("changes", [{}, {"num_local_experts": 12}, {"num_experts": 12}])
@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"])
def test_what_a_file_leaves_out_is_what_transformers_takes(
    model_type: str, changes: dict[str, int], tmp_path: Path
) -> None:
    config = AutoConfig.for_model(model_type, **SIZES, **changes)
    whole = {"architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]], "model_type": model_type}
    (tmp_path / "config.json").write_text(json.dumps(whole | SIZES | changes))
    shape, facts = read_shape(tmp_path), ModelFacts.of(whole | SIZES | changes)
    assert shape.mixture is not None
    found = shape.kv_heads, shape.mixture.experts, shape.mixture.chosen, shape.max_position, shape.norm_eps
    names = {"num_experts": "num_local_experts" if hasattr(config, "num_local_experts") else "num_experts"}
    if not changes or next(iter(changes)) == names["num_experts"] or "num_experts" in config.attribute_map:
        assert found == tuple(getattr(config, names.get(name, name)) for name in TOLD)
    assert (facts.kv_heads, facts.experts, facts.chosen_experts, facts.max_position) == found[:4]


def test_a_null_number_of_key_value_heads_is_a_head_each(tmp_path: Path) -> None:
    whole = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_key_value_heads": None} | SIZES
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert read_shape(tmp_path).kv_heads == ModelFacts.of(whole).kv_heads == 32


def test_fp8_of_experts_is_refused_by_name(tmp_path: Path) -> None:
    written(tiny("qwen3_moe"), tmp_path)
    with pytest.raises(ModelUnsupported, match="FP8 weights are not built for mixtures of experts"):
        load_model(tmp_path, torch.float32, 64, quantize=True)
    whole = json.loads((tmp_path / "config.json").read_bytes())
    missing = ModelFacts.of(whole | {"quantization_config": {"quant_method": "fp8"}}).not_built
    assert missing is not None
    assert "quantization_config is not built for the experts of Qwen3MoeForCausalLM" in missing


@pytest.mark.parametrize("name", ["hidden", "positions", "tokens", "tables"])
def test_a_buffer_that_is_loaded_wrongly_fails_the_self_check(
    started: Callable[..., Runner], half_dense: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16, where choices tip: what tipping moves is no excuse for a stale token or another's pages. Graphs and
    the code they hold read the same wrong buffer, so that only plain eager can tell."""
    load = Buffers.load

    def shifted(self: Buffers, field: str, live: torch.Tensor, size: int) -> None:
        load(self, field, live.roll(1, 0) if field == name else live, size)

    settings: dict[str, Any] = {"folder": half_dense, "dtype": "bfloat16", "prefill_sizes": (8,), "decode_sizes": (4,)}
    started(**settings)
    monkeypatch.setattr(Buffers, "load", shifted)
    with pytest.raises(StartFailure, match="differs from plain eager") as caught:
        started(**settings)
    assert caught.value.code is ExitCode.SelfCheckFailed


def test_tipping_turns_some_choices_and_is_gone_behind_it(half_dense: Path) -> None:
    model = load_model(half_dense, torch.bfloat16, 64)
    assert isinstance(model, Decoder)
    (experts,) = (one for one in model.module().modules() if isinstance(one, Experts))
    x = torch.randn(500, 64, generator=torch.Generator().manual_seed(0)).bfloat16()

    def choices() -> torch.Tensor:
        return functional.linear(x, experts.router).topk(2).indices

    before, tipped, router = choices(), tipping_of(model.module()), experts.router.clone()
    assert tipped is not None
    with tipped():
        assert 0 < int((choices() != before).any(-1).sum()) < 250
    assert torch.equal(experts.router, router)

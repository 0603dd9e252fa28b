"""DeepSeek-V2 by our own layers: logits, policies, a KV cache of latents, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from transformers import AutoConfig

from graphpod_policy import (
    CompileMode,
    Device,
    Features,
    GraphRequest,
    KvCacheDtype,
    ModelFacts,
    ModelPath,
    ModelUnreadable,
    Policy,
    Quantization,
    resolve,
)
from graphpod_policy.start.can_start import can_start
from graphpod_policy.start.footprint import page_bytes as estimated
from graphpod_policy.start.footprint import weights_bytes
from graphpod_runtime.base.errors import ModelUnsupported
from graphpod_runtime.cache.host_pool import HostPool
from graphpod_runtime.cache.kv import KvCache, page_bytes
from graphpod_runtime.compiled.aot import write_package
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.kernels.latent_product import latent_product
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import engine_config, random_prompts
from tests.unit.runtime.models.test_configurations import logits
from truth.families.tiny import tiny
from truth.families.trial import written
from truth.families.variants import YARN

GROUPED = {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
CASES: dict[str, dict[str, Any]] = {
    "queries of the input, sharper yarn": {
        "q_lora_rank": None,
        "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.9},
    },
    "biases, experts of one group": GROUPED | {"attention_bias": True, "routed_scaling_factor": 3.0},
    "biases, queries of the input": {"attention_bias": True, "q_lora_rank": None, "rms_norm_eps": 1e-3},
    "dense layers": {"first_k_dense_replace": 2, "intermediate_size": 80, "tie_word_embeddings": True},
    "odd widths, linear": {
        "qk_nope_head_dim": 20,
        "qk_rope_head_dim": 6,
        "v_head_dim": 36,
        "kv_lora_rank": 28,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    },
    "one layer of experts": {"num_hidden_layers": 1, "first_k_dense_replace": 0, "n_shared_experts": 3},
}
"""Changes of the small configuration."""


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    reference = written(tiny("deepseek_v2", **CASES[case]), tmp_path)
    reference.set_experts_implementation("eager")  # its own product takes no odd widths
    with torch.no_grad():
        expected = reference(torch.arange(3, 43)[None]).logits[0]
    assert (logits(tmp_path) - expected).abs().max() <= 1e-5 * expected.abs().max()
    facts = ModelFacts.of(json.loads((tmp_path / "config.json").read_bytes()))
    assert (facts.path, facts.not_built) == (ModelPath.Native, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense layer and one of experts."""
    folder = tmp_path_factory.mktemp("latent")
    written(tiny("deepseek_v2", **GROUPED), folder)
    return folder


@pytest.mark.parametrize(
    ("prefill", "decode", "changes"),
    [
        (Policy.Breakable, Policy.Full, {}),
        (Policy.Piecewise, Policy.Breakable, {}),
        (Policy.Breakable, Policy.Full, {"kv_cache_dtype": KvCacheDtype.Fp8}),
        (Policy.Piecewise, Policy.Full, {"compile": CompileMode.Inductor}),
    ],
)
@pytest.mark.usefixtures("as_written")
def test_graphs_give_the_tokens_of_the_code_they_hold(
    started: Callable[..., Runner], folder: Path, prefill: Policy, decode: Policy, changes: dict[str, Any]
) -> None:
    prompts = [[token % 190 for token in prompt] for prompt in random_prompts(6)]
    plain = {name: value for name, value in changes.items() if name != "compile"}
    wanted = generate(started(Policy.Disabled, Policy.Disabled, folder=folder, **plain), prompts, 6, ignore_eos=True)
    runner = started(prefill, decode, folder=folder, **changes)
    assert [runner.report.phases[phase].effective for phase in runner.report.phases] == [prefill, decode]
    assert generate(runner, prompts, 6, ignore_eos=True) == wanted
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0


def test_the_cache_has_one_vector_of_a_token_and_the_estimate_says_so(
    started: Callable[..., Runner], folder: Path
) -> None:
    runner = started(folder=folder)
    shape, cache = read_shape(folder), runner._engine.attention.cache
    assert shape.latent is not None
    assert (shape.kv_heads, shape.head_dim) == (1, shape.latent.rank + shape.latent.rotated)
    assert cache.values is cache.keys
    facts = ModelFacts.of(json.loads((folder / "config.json").read_bytes()))
    one = page_bytes(shape, cache.page_size, torch.float32)
    assert one == estimated(runner.config, facts) == shape.layers * cache.page_size * shape.head_dim * 4
    assert runner.report.kv_bytes == cache.pages * one


def test_the_product_behind_latents_is_one_program_for_one_row_and_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a compiler gets it: a start compiles a layer once for all numbers of rows."""
    traced = []

    def packaged(program: Any, package_path: str, **_: Any) -> None:
        traced.append(program.module())
        ZipFile(package_path, "w").close()

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", packaged)
    x, values, matrix = torch.randn(5, 4 * 24), torch.randn(4, 12, 16), torch.randn(64, 4 * 12)
    write_package(latent_product, (x, values, matrix, None), (0,), tmp_path / "product.pt2", {})
    for rows in (1, 5):
        (found,) = traced[0](x[:rows], values, matrix)
        assert torch.allclose(found, latent_product(x[:rows], values, matrix, None), atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"q_lora_rank": None}])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_weights_of_a_rank_are_those_of_its_heads_and_all_that_makes_latents(
    tmp_path: Path, changes: dict[str, Any], ranks: int
) -> None:
    """The estimate leaves out norms."""
    written(tiny("deepseek_v2", vocab_size=200, **changes), tmp_path)
    facts = ModelFacts.of(json.loads((tmp_path / "config.json").read_bytes()))
    model = load_model(tmp_path, torch.float32, 64, rank=ranks - 1, ranks=ranks)
    taken = sum(one.nbytes for one in model.module().parameters() if one.dim() > 1)
    assert weights_bytes(engine_config(tmp_path, Policy.Disabled, Policy.Disabled, tensor=ranks), facts) == taken


def test_pages_of_latents_come_back_from_the_host(folder: Path) -> None:
    cache = KvCache.allocate(read_shape(folder), 6, 4, torch.float32)
    cache.draw(torch.arange(6), seed=3)
    kept = cache.take(torch.tensor([2, 5]))
    pool = HostPool(cache, 4 * page_bytes(read_shape(folder), 4, torch.float32))
    assert pool.slots == 4
    pool.store({0: 2, 1: 5})
    cache.clear()
    assert not cache.holds(torch.tensor([3, 1]), kept)
    pool.load([0, 1], [3, 1])
    assert cache.holds(torch.tensor([3, 1]), kept)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mlp_bias": True}, "mlp_bias=true is not built for DeepseekV2ForCausalLM; only false is"),
        ({"norm_topk_prob": True}, "norm_topk_prob=true is not built"),
        ({"scoring_func": "sigmoid"}, 'scoring_func="sigmoid" is not built'),
        ({"topk_method": "noaux_tc"}, 'only "greedy" or "group_limited_greedy" is'),
        ({"moe_layer_freq": 2}, "moe_layer_freq=2 is not built"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is not built for DeepseekV2For"),
    ],
)
def test_what_is_not_built_is_refused_by_name(changes: dict[str, Any], words: str, folder: Path) -> None:
    whole = json.loads((folder / "config.json").read_bytes())
    missing = ModelFacts.of(whole | changes).not_built
    assert missing is not None
    assert words in missing


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_lora_rank": 0}, "kv_lora_rank 0; a width is 1 to 65536"),
        ({"q_lora_rank": 1 << 20}, "q_lora_rank 1048576"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim 7; rotary positions turn pairs"),
        ({"num_key_value_heads": 2}, "num_key_value_heads 2; with latent attention it is num_attention_heads, 4"),
        ({"n_group": 3}, "n_group 3 does not divide 4 experts"),
        ({"topk_group": 3}, "topk_group 3 of 2 groups of 2, for 2 chosen experts"),
        ({"num_experts_per_tok": 3}, "topk_group 1 of 2 groups of 2, for 3 chosen experts"),
    ],
)
def test_fields_without_a_usable_value_are_named(changes: dict[str, Any], words: str, folder: Path) -> None:
    whole = json.loads((folder / "config.json").read_bytes())
    with pytest.raises(ModelUnreadable, match=words):
        ModelFacts.of(whole | changes)


def test_fp8_weights_are_refused_without_experts_too(tmp_path: Path) -> None:
    config = tiny("deepseek_v2", first_k_dense_replace=2)
    config.architectures = ["DeepseekV2ForCausalLM"]
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelUnsupported, match="FP8 weights are not built for latent attention"):
        load_model(tmp_path, torch.float32, 64, quantize=True)
    # A start says so before it loads anything.
    asked = engine_config(tmp_path, Policy.Disabled, Policy.Disabled, quantization=Quantization.Fp8)
    facts = ModelFacts.of(json.loads((tmp_path / "config.json").read_bytes()))
    assert not facts.experts
    plan = resolve(Features(device=Device.Cpu, quantization=Quantization.Fp8), GraphRequest())
    said = [each.what for each in can_start(asked, plan, facts)]
    assert "spec.engine.quantization: Fp8 is not built for the latent attention of DeepseekV2ForCausalLM" in said


SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 199,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"q_lora_rank": None}])
def test_what_a_file_leaves_out_is_what_transformers_takes(changes: dict[str, Any], tmp_path: Path) -> None:
    stated = SIZES | {"num_experts_per_tok": 3} | changes
    whole = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"} | stated
    (tmp_path / "config.json").write_text(json.dumps(whole))
    theirs, shape = AutoConfig.for_model("deepseek_v2", **stated), read_shape(tmp_path)
    assert shape.latent is not None
    assert shape.mixture is not None
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    assert shape.latent == (theirs.q_lora_rank or 0, *(getattr(theirs, name) for name in names))
    shared = theirs.n_shared_experts * theirs.moe_intermediate_size
    found = (shape.mixture.experts, shape.mixture.width, shape.mixture.shared, shape.mixture.scale, shape.max_position)
    assert found == (
        theirs.n_routed_experts,
        theirs.moe_intermediate_size,
        shared,
        theirs.routed_scaling_factor,
        theirs.max_position_embeddings,
    )
    assert shape.mixture.layers == tuple(range(theirs.first_k_dense_replace, 2))


LITE = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM"},
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "v_head_dim": 128,
    "vocab_size": 102400,
}
"""The config.json of DeepSeek-V2-Lite, as its authors wrote it, without what training needs."""


def test_deepseek_v2_lite_is_read_as_its_authors_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LITE))
    facts, shape = ModelFacts.of(LITE), read_shape(tmp_path)
    assert (facts.not_built, facts.max_position) == (None, 163840)
    assert round(facts.params / 1e9, 2) == 15.70
    assert page_bytes(shape, 1, torch.bfloat16) == 27 * 576 * 2
    assert shape.softmax_scale == pytest.approx(192**-0.5 * (0.1 * 0.707 * 3.6888794541139363 + 1) ** 2)
    assert shape.stretch is not None
    assert shape.stretch.amplitude == 1.0

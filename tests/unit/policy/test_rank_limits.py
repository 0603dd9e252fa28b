"""What several ranks cannot do is refused before a weight is read: by both numbers, or by the feature's name."""

import re
from dataclasses import replace
from typing import Any

import pytest

from graphpod_policy import (
    Device,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    ModelFacts,
    Phase,
    Policy,
    Quantization,
    SpeculativeMethod,
    can_start,
    resolve,
)
from graphpod_policy.cost.cost import phase_cost
from graphpod_policy.model.stages import stage_layers
from graphpod_policy.node import NOWHERE, processes_bytes
from graphpod_policy.start.footprint import host_page_bytes, host_tier_bytes, page_bytes, weights_bytes

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
"""The shape of SmolLM2."""


def engine(features: Features) -> EngineConfig:
    request = GraphRequest()
    return EngineConfig.of(features, request, resolve(features, request), dtype="float32", model=ModelConfig("m", "/m"))


def refused(features: Features, config: dict[str, Any]) -> str:
    found = engine(features)
    return "; ".join(map(str, can_start(found, found.resolved(), ModelFacts.of(config))))


@pytest.mark.parametrize(
    ("ranks", "changes", "words"),
    [
        (2, {}, "tensor 2 does not divide 9 attention heads"),
        (2, {"num_attention_heads": 8}, "tensor 2 and 3 key-value heads: neither divides the other"),
        (3, {"intermediate_size": 100}, "tensor 3 does not divide 100 columns of an MLP"),
        (3, {"vocab_size": 100}, "tensor 3 does not divide 100 tokens of the vocabulary"),
    ],
)
def test_what_does_not_divide_is_refused_with_both_numbers(ranks: int, changes: dict[str, Any], words: str) -> None:
    assert words in refused(Features(tensor=ranks), LLAMA | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sleep": True}, "spec.engine.sleep: sleep with"),
        ({"reload": True}, "spec.engine.reload: new weights in place with"),
    ],
)
def test_what_ranks_do_not_have_yet_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    found = refused(Features(tensor=3, **changes), LLAMA)
    assert f"{words} spec.parallelism.tensor 3 is not built in this version" in found
    assert "or set spec.parallelism.tensor: 1" in found
    assert "is not built" not in refused(Features(tensor=1, **changes), LLAMA)


BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("ranks", "changes", "words"),
    [
        (3, {}, "tensor 3 divides self_attn.q_proj into parts of 192, and its FP8 scales are of 128"),
        (2, {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}, "self_attn.k_proj into parts of 64,"),
        (2, {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 384},
         "tensor 2 divides mlp.down_proj into parts of 192, and its FP8 scales are of 128"),
    ],
)  # fmt: skip
def test_parts_that_begin_within_a_block_are_refused_with_both_numbers(
    ranks: int, changes: dict[str, Any], words: str
) -> None:
    found = refused(Features(tensor=ranks), LLAMA | changes | {"quantization_config": BLOCKS})
    assert words in found
    assert "a part begins within a block" in found
    assert refused(Features(pipeline=ranks), LLAMA | changes | {"quantization_config": BLOCKS}) == ""


def test_parts_of_whole_blocks_and_of_other_formats_begin_anywhere() -> None:
    whole = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "quantization_config": BLOCKS}
    assert refused(Features(tensor=2), LLAMA | whole) == ""
    left_out = BLOCKS | {"modules_to_not_convert": ["self_attn", "mlp"]}
    assert refused(Features(tensor=3), LLAMA | {"quantization_config": left_out}) == ""
    assert refused(Features(tensor=3, quantization=Quantization.Fp8), LLAMA) == ""


def test_a_stage_saves_the_second_byte_of_its_own_layers() -> None:
    model, features = ModelFacts.of(LLAMA), Features(pipeline=4, quantization=Quantization.Fp8)
    saved = weights_bytes(engine(Features(pipeline=4)), model) - weights_bytes(engine(features), model)
    assert saved == 3 * 8 * sum(model.matrices.values())  # float32


def test_each_rank_has_all_of_a_draft_model() -> None:
    """A third of a small model would compute no faster, and exchange sums at each of its steps."""
    features = {"speculative": SpeculativeMethod.DraftModel, "speculative_draft": "/d"}
    draft = ModelFacts.of(LLAMA | {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4})
    model = replace(ModelFacts.of(LLAMA), draft=draft)
    alone, spread, plain = engine(Features()), engine(Features(tensor=3, **features)), engine(Features(tensor=3))
    for counted in (weights_bytes, page_bytes):
        assert counted(spread, model) == counted(plain, ModelFacts.of(LLAMA)) + counted(alone, draft)
    config = engine(Features(tensor=3, **features))
    assert not can_start(config, config.resolved(), model)


@pytest.mark.parametrize("shape", [{"tensor": 3}, {"pipeline": 4}, {"tensor": 3, "pipeline": 2}])
def test_ranks_share_the_host_cache_of_a_pod(shape: dict[str, int]) -> None:
    """On a CPU each takes its share of the memory that the pod has; a page of the pool is the ranks' parts of it."""
    features, model = Features(host_cache_bytes=12 << 20, **shape), ModelFacts.of(LLAMA)
    config = engine(features)
    assert not can_start(config, config.resolved(), model)
    assert host_tier_bytes(config) == (12 << 20) // config.features.ranks
    assert host_page_bytes(config, model) == page_bytes(engine(Features()), model)


def test_the_pool_of_a_machine_has_the_pages_of_its_own_stages() -> None:
    """Of 30 layers in four stages the first two have 16."""
    model, whole = ModelFacts.of(LLAMA), page_bytes(engine(Features()), ModelFacts.of(LLAMA))
    assert host_page_bytes(engine(Features(nodes=2, pipeline=4)), model) == whole * 16 // 30


def test_ranks_leave_less_room_for_a_host_cache() -> None:
    config = engine(Features(tensor=3, host_cache_bytes=1 << 30))
    limit = (1 << 30) + processes_bytes(2)
    node = replace(NOWHERE, container_bytes=limit)
    (found,) = (one for one in can_start(config, config.resolved(), None, node) if one.reason == "HostCacheInvalid")
    assert "of which front and 3 ranks themselves take 1.0 GiB" in found.what
    assert not can_start(config, config.resolved(), None, replace(node, container_bytes=(1 << 30) + processes_bytes(3)))


def test_on_a_cpu_a_host_cache_that_leaves_no_room_is_named_and_not_the_kv_cache() -> None:
    config, model, free = (
        engine(Features(host_cache_bytes=32 << 30, max_model_len=2048)),
        ModelFacts.of(LLAMA),
        23 << 30,
    )
    (found,) = can_start(config, config.resolved(), model, replace(NOWHERE, free_bytes=free))
    assert found.reason == "HostCacheInvalid"
    assert "spec.engine.hostCache.size 32Gi does not fit: there are 23.0 GiB free" in found.what
    most, missing = (int(amount) << 20 for amount in re.findall(r"(\d+)Mi", found.step))
    assert most + missing == 32 << 30
    lower = engine(Features(host_cache_bytes=most, max_model_len=2048))
    assert not can_start(lower, lower.resolved(), model, replace(NOWHERE, free_bytes=free))
    assert not can_start(config, config.resolved(), model, replace(NOWHERE, free_bytes=free + missing))


def test_where_even_without_a_host_cache_no_context_fits_the_kv_cache_is_named() -> None:
    model = ModelFacts.of(LLAMA)
    free = weights_bytes(engine(Features()), model) + (1 << 20)
    config = engine(Features(host_cache_bytes=1 << 20, max_model_len=2048))
    (found,) = can_start(config, config.resolved(), model, replace(NOWHERE, free_bytes=free))
    assert found.reason == "KvCacheTooSmall"


EAGLE3 = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 3000}


def with_head(**changes: Any) -> ModelFacts:
    return replace(ModelFacts.of(LLAMA), draft=ModelFacts.of_head(SpeculativeMethod.Eagle3, EAGLE3 | changes))


def test_ranks_share_the_layers_of_a_head_and_have_each_what_joins_token_and_state() -> None:
    features = {"speculative": SpeculativeMethod.Eagle3, "speculative_draft": "/d"}
    alone, spread = engine(Features(**features)), engine(Features(tensor=3, **features))
    model, body = with_head(), ModelFacts.of(LLAMA)
    assert model.draft is not None
    joining = 3 * 576 * 576
    whole, part = (weights_bytes(one, model) - weights_bytes(one, body) for one in (alone, spread))
    assert whole == 4 * model.draft.params  # float32
    assert part == 4 * (model.draft.params - joining) // 3 + 4 * joining
    assert page_bytes(spread, model) == page_bytes(alone, model) // 3
    assert not can_start(spread, spread.resolved(), model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 72},
         "tensor 3 does not divide 8 attention heads of the draft head"),
        ({"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 48},
         "tensor 3 and 4 key-value heads of the draft head: neither divides the other"),
        ({"intermediate_size": 100}, "tensor 3 does not divide 100 columns of an MLP of the draft head"),
        ({"draft_vocab_size": 1000}, "tensor 3 does not divide 1000 tokens of the vocabulary of the draft head"),
    ],
)  # fmt: skip
def test_a_head_that_does_not_divide_is_refused_with_both_numbers(changes: dict[str, Any], words: str) -> None:
    config = engine(Features(tensor=3, speculative=SpeculativeMethod.Eagle3, speculative_draft="/d"))
    assert words in "; ".join(map(str, can_start(config, config.resolved(), with_head(**changes))))


def test_every_parallelism_above_one_is_named() -> None:
    found = refused(Features(tensor=3, pipeline=2, sleep=True), LLAMA)
    assert "with spec.parallelism.tensor 3 and spec.parallelism.pipeline 2 is not built in this version" in found
    assert "or set spec.parallelism.tensor: 1 and spec.parallelism.pipeline: 1" in found


@pytest.mark.parametrize("device", Device)
def test_graphs_of_a_stage_cost_what_those_of_its_layers_do(device: Device) -> None:
    """Of the stage with most: 30 layers over 4 stages are 8, 8, 7 and 7."""
    spread, alone = Features(device=device, pipeline=4), Features(device=device)
    eight = ModelFacts.of(LLAMA | {"num_hidden_layers": 8})
    one = phase_cost(Phase.Decode, Policy.Breakable, (1, 8), spread, ModelFacts.of(LLAMA))
    other = phase_cost(Phase.Decode, Policy.Breakable, (1, 8), alone, eight)
    assert one.bytes == other.bytes
    if device is Device.Cuda:
        assert one == other


@pytest.mark.parametrize("architecture", ["Phi3ForCausalLM", "Glm4ForCausalLM", "CohereForCausalLM"])
@pytest.mark.parametrize("spread", [{"tensor": 3}, {"pipeline": 3}])
def test_families_whose_checkpoints_fuse_or_reorder_heads_are_divided(architecture: str, spread: Any) -> None:
    assert "is not built" not in refused(Features(**spread), LLAMA | {"architectures": [architecture]})


def test_ranks_need_a_gpu_each_and_processes_on_a_cpu() -> None:
    assert refused(Features(tensor=3), LLAMA) == ""
    assert "tensor 3 and pipeline 1 make 3 ranks for 1 GPU;" in refused(Features(Device.Cuda, 1, tensor=3), LLAMA)


def test_machines_have_as_many_ranks_each_and_gpus_are_those_of_one() -> None:
    assert refused(Features(pipeline=2, nodes=2), LLAMA) == ""
    assert "nodes 2 do not divide 3 ranks, and each machine has as many" in refused(Features(tensor=3, nodes=2), LLAMA)
    assert refused(Features(Device.Cuda, 3, tensor=3, pipeline=2, nodes=2), LLAMA) == ""
    found = refused(Features(Device.Cuda, 2, tensor=3, pipeline=2, nodes=2), LLAMA)
    assert "tensor 3 and pipeline 2 make 6 ranks for 4 GPUs" in found
    assert "set spec.resources.limits[nvidia.com/gpu]: 3" in found


def test_nodes_that_do_not_divide_the_ranks_are_the_only_reason_whatever_the_gpus() -> None:
    """Their number is that of a pod, which nobody can set right for such nodes."""
    model = LLAMA | {"num_attention_heads": 8, "num_key_value_heads": 4}
    for gpus in (1, 2, 3):
        assert refused(Features(Device.Cuda, gpus, tensor=2, pipeline=2, nodes=3), model) == (
            "spec.parallelism: nodes 3 do not divide 4 ranks, and each machine has as many; set spec.parallelism.nodes "
            "to 1, 2 or 4, or make tensor times pipeline a multiple of 3"
        )


def test_all_that_tensor_does_not_divide_is_one_reason_with_the_numbers_that_would() -> None:
    model = LLAMA | {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 50000}
    assert refused(Features(tensor=3), model) == (
        "spec.parallelism: tensor 3 does not divide 8 attention heads, tensor 3 does not divide 50000 tokens of the "
        "vocabulary, tensor 3 and 4 key-value heads: neither divides the other; set spec.parallelism.tensor to 1, 2, 4 "
        "or 8, which this model divides by"
    )
    mixture = QWEN_MIXTURE | {"num_attention_heads": 8, "num_key_value_heads": 4}
    found = refused(Features(tensor=6, expert=2), mixture)
    assert found.endswith("set spec.parallelism.tensor to 2, 4 or 8, which this model divides by")


def test_stages_need_a_layer_each_and_no_equal_share() -> None:
    assert refused(Features(pipeline=2), LLAMA | {"num_hidden_layers": 9}) == ""
    assert refused(Features(pipeline=4), LLAMA | {"num_hidden_layers": 3}) == (
        "spec.parallelism: pipeline 4 has more stages than the model has layers (3); lower spec.parallelism.pipeline "
        "to at most 3"
    )
    assert "tensor 1 and pipeline 3 make 3 ranks for 1 GPU;" in refused(Features(Device.Cuda, 1, pipeline=3), LLAMA)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculative": SpeculativeMethod.Ngram}, "spec.engine.speculative: speculative decoding by Ngram with"),
        ({"lora": ("a",)}, "spec.engine.lora: LoRA adapters (a) is"),
        ({"expert": 2}, "spec.parallelism.expert: 2 with spec.parallelism.tensor 1 is"),
    ],
)
def test_what_stages_do_not_have_yet_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    found = refused(Features(pipeline=2, **changes), LLAMA)
    assert words in found
    if words.endswith("with"):
        assert f"{words} spec.parallelism.pipeline 2 is not built in this version" in found
        assert "or set spec.parallelism.pipeline: 1" in found


@pytest.mark.parametrize("architecture", ["Olmo2ForCausalLM", "Qwen3ForCausalLM"])
def test_heads_that_are_normalised_are_divided(architecture: str) -> None:
    assert refused(Features(tensor=3), LLAMA | {"architectures": [architecture]}) == ""


@pytest.mark.parametrize(("layers", "stages", "each"), [(9, 2, (5, 4)), (30, 4, (8, 8, 7, 7)), (3, 3, (1, 1, 1))])
def test_stages_have_layers_in_their_order(layers: int, stages: int, each: tuple[int, ...]) -> None:
    assert stage_layers(layers, stages) == each


def test_pages_and_weights_of_a_pipeline_are_those_of_its_largest_stage() -> None:
    model = ModelFacts.of(LLAMA | {"num_hidden_layers": 9})
    alone, staged = engine(Features()), engine(Features(pipeline=2))
    assert page_bytes(staged, model) == page_bytes(alone, model) * 5 // 9
    table = 49152 * 576 * 4
    assert weights_bytes(staged, model) == table + (weights_bytes(alone, model) - table) * 5 // 9


@pytest.mark.parametrize(("ranks", "heads"), [(1, 3), (3, 1), (9, 1)])
def test_a_page_of_the_kv_cache_has_the_heads_of_one_rank(ranks: int, heads: int) -> None:
    model = ModelFacts.of(LLAMA)
    alone = page_bytes(engine(Features()), model)
    assert page_bytes(engine(Features(tensor=ranks)), model) == alone * heads // 3


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_heads_over_latents_are_divided_and_each_rank_has_the_latents(name: str) -> None:
    latent = {
        "num_key_value_heads": 9,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
    config = LLAMA | {"architectures": ["DeepseekV2ForCausalLM"], "n_routed_experts": 6, "moe_intermediate_size": 96}
    config |= latent | {"num_experts_per_tok": 2, "moe_layer_freq": 1}
    assert refused(Features(**{name: 3}), config) == ""
    model = ModelFacts.of(config)
    alone, own = (page_bytes(engine(one), model) for one in (Features(), Features(**{name: 3})))
    assert own == (alone if name == "tensor" else alone // 3)


QWEN_MIXTURE = LLAMA | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "num_experts": 60,
    "moe_intermediate_size": 96,
    "shared_expert_intermediate_size": 192,
    "intermediate_size": 100,
}


def test_columns_of_experts_are_divided_and_those_of_an_mlp_where_there_is_one() -> None:
    for name in ("tensor", "pipeline"):
        assert refused(Features(**{name: 3}), QWEN_MIXTURE) == ""
    for changes, words in (
        ({"moe_intermediate_size": 97}, "tensor 3 does not divide 97 columns of an expert"),
        ({"shared_expert_intermediate_size": 194}, "tensor 3 does not divide 194 columns of the expert of every token"),
        ({"mlp_only_layers": [2]}, "tensor 3 does not divide 100 columns of an MLP"),
    ):
        assert words in refused(Features(tensor=3), QWEN_MIXTURE | changes)


def test_whole_experts_are_divided_over_the_ranks_of_each_layer() -> None:
    assert refused(Features(tensor=3, expert=3), QWEN_MIXTURE | {"moe_intermediate_size": 97}) == ""
    assert "expert 3 does not divide 61 experts" in refused(
        Features(tensor=3, expert=3), QWEN_MIXTURE | {"num_experts": 61}
    )
    for expert in (2, 3):
        found = refused(Features(tensor=3, expert=expert), LLAMA)
        assert f"expert {expert}, and the model has no experts; remove spec.parallelism.expert" in found
        assert "does not divide tensor" not in found
    found = refused(Features(tensor=3, expert=6), QWEN_MIXTURE)
    assert "spec.parallelism.expert: 6 with spec.parallelism.tensor 3 is not built in this version" in found
    assert "set spec.parallelism.expert: 3, or spec.parallelism.tensor: 6 with a GPU for each rank" in found


def test_ranks_of_a_group_divide_the_columns_of_its_experts() -> None:
    four = QWEN_MIXTURE | {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512}
    assert refused(Features(tensor=4, expert=2), four) == ""
    found = refused(Features(tensor=4, expert=2), four | {"moe_intermediate_size": 97})
    assert "tensor 4 / expert 2, which is 2 does not divide 97 columns of an expert" in found
    found = refused(Features(tensor=4, expert=3), four)
    assert "spec.parallelism: expert 3 does not divide tensor 4" in found
    assert "set spec.parallelism.expert to a number that divides both tensor and the model's experts" in found


@pytest.mark.parametrize("expert", [1, 2, 4])
def test_each_rank_has_the_whole_router_and_a_share_of_all_experts(expert: int) -> None:
    """However experts are spread; and of fewer key-value heads than ranks, one each."""
    four = QWEN_MIXTURE | {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "head_dim": 64}
    model = ModelFacts.of(four)
    routers, heads = 30 * 512 * 60, 30 * 2 * 512 * 64
    alone, each = (weights_bytes(engine(spread), model) for spread in (Features(), Features(tensor=4, expert=expert)))
    assert alone == 4 * (model.params + routers)
    assert each == 4 * ((model.params - 2 * heads) // 4 + heads + routers)

"""Any service, any request, any facts; and the order of strength that facts must not climb."""

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from graphpod_policy import (
    AllToAll,
    AttentionBackend,
    CompileMode,
    Device,
    Facts,
    Features,
    GraphRequest,
    KvCacheDtype,
    ModelFacts,
    OnUnsupported,
    Phase,
    Plan,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
)
from graphpod_policy.resolution.resolve import candidates
from graphpod_policy.resolution.search import COMPILE_ORDER

PREFILL, DECODE = Phase.Prefill, Phase.Decode

CUDA = Features(device=Device.Cuda, gpus=1, max_model_len=8192, max_batch=64)
"""A service on one GPU that says how long and how many."""

PLAIN = Features(device=Device.Cuda, gpus=1)
"""A service on one GPU that leaves both to its pods."""

LLAMA = ModelFacts("LlamaForCausalLM", 32, 4096, 14336, 32, 8, 128, 128256)

GIB = 1 << 30


def _rarely(values: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    """Mostly `otherwise`, so that rules are also seen one by one."""
    return st.one_of(st.just(otherwise), st.just(otherwise), values)


_USED: dict[str, st.SearchStrategy[Any]] = {
    "device": st.sampled_from(Device),
    "gpus": st.integers(0, 16),
    "nodes": st.integers(1, 4),
    "max_model_len": st.none() | st.integers(1, 40_000),
    "max_batch": st.none() | st.integers(1, 1024),
    "prefill_chunk": st.none() | st.integers(1, 20_000),
    "tensor": st.sampled_from([1, 2, 4, 8, 6]),
    "pipeline": st.integers(1, 4),
    "data": st.sampled_from([1, 2, 4, 3]),
    "expert": st.integers(1, 64),
    "context": st.integers(1, 4),
    "all_to_all": st.sampled_from(AllToAll),
    "speculative": st.sampled_from(SpeculativeMethod),
    "speculative_steps": st.integers(1, 16),
    "speculative_topk": st.integers(1, 4),
    "host_cache_bytes": st.just(GIB),
    "cpu_offload_bytes": st.just(GIB),
    "lora": st.just(("a", "b")),
    "quantization": st.sampled_from(Quantization),
    "kv_cache_dtype": st.sampled_from(KvCacheDtype),
    "attention": st.sampled_from(AttentionBackend),
    "role": st.sampled_from(Role),
}
_ALWAYS = ("device", "max_model_len", "max_batch")

features = st.builds(
    Features,
    **{
        row.name: _USED.get(row.name, st.booleans())
        if row.name in _ALWAYS
        else _rarely(_USED.get(row.name, st.booleans()), row.default)
        for row in fields(Features)
    },
)

sizes = st.none() | st.sets(st.integers(1, 20_000), min_size=1, max_size=12).map(lambda found: tuple(sorted(found)))

requests = st.builds(
    GraphRequest,
    prefill=st.sampled_from(Policy),
    decode=st.sampled_from(Policy),
    prefill_sizes=sizes,
    decode_sizes=sizes,
    compile=st.sampled_from(CompileMode),
    budget_bytes=st.none() | st.integers(1, 4 * GIB),
    budget_seconds=st.none() | st.integers(1, 600),
    on_unsupported=st.sampled_from(OnUnsupported),
)

models = st.builds(
    ModelFacts,
    architecture=st.sampled_from(
        ["LlamaForCausalLM", "DeepseekV4ForCausalLM", "DeepseekV3ForCausalLM", "Qwen3NextForCausalLM", "LLaDAModelLM",
         "NemotronHForCausalLM", "KimiK25ForConditionalGeneration", "Gemma3ForConditionalGeneration"]
    ),
    layers=st.integers(1, 100),
    hidden=st.integers(64, 8192),
    intermediate=st.integers(64, 30_000),
    heads=st.just(32),
    kv_heads=st.just(8),
    head_dim=st.just(128),
    vocab=st.integers(1000, 200_000),
    experts=st.integers(0, 64),
    multimodal=st.booleans(),
    max_position=st.none() | st.integers(1, 200_000),
)  # fmt: skip

facts = st.builds(
    Facts,
    attention_layers=st.none() | st.just(32),
    configured_layers=st.sampled_from([32, 31]),
    model=st.none() | models,
    gpu_memory_bytes=st.none() | st.integers(8 * GIB, 200 * GIB),
    free_bytes=st.none() | st.integers(0, 4 * GIB),
    reads_whole_tables=st.booleans(),
)


def rank(phase: Phase, requested: Policy, policy: Policy) -> int:
    """Higher is stronger: by the order of the request, which is Auto's behind the policy that was asked for."""
    return -candidates(phase, requested).index(policy)


def at_most(weaker: Plan, stronger: Plan) -> bool:
    """Whether `weaker` is nowhere stronger: policy by Auto's order, ladder by subset, compile by its order."""
    compiled = COMPILE_ORDER.index(weaker.compile) <= COMPILE_ORDER.index(stronger.compile)
    return compiled and all(
        rank(phase, row.requested, weaker.phases[phase].planned) <= rank(phase, row.requested, row.planned)
        and set(weaker.phases[phase].sizes) <= set(row.sizes)
        for phase, row in stronger.phases.items()
    )

"""What the engine of this version really has. Nothing is accepted and ignored: the rest is refused by name."""

from collections.abc import Callable
from typing import NamedTuple

from graphpod_policy.enums import (
    AttentionBackend,
    CompileMode,
    Device,
    KvCacheDtype,
    Phase,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
)
from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.units import as_quantity

BUILT_POLICIES: dict[Phase, tuple[Policy, ...]] = {
    Phase.Prefill: (Policy.Breakable, Policy.Piecewise, Policy.Disabled),
    Phase.Decode: (Policy.Full, Policy.Breakable, Policy.Disabled),
}
"""The policies this version's engine can run."""

DRAFT_HEADS = (SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3, SpeculativeMethod.Mtp)
"""Methods whose drafts read hidden states of the model itself."""

WITH_WEIGHTS = (SpeculativeMethod.DraftModel, SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3)
"""Methods that take weights of their own."""

BUILT_COMPILE: tuple[CompileMode, ...] = (CompileMode.Nothing, CompileMode.Inductor)
"""The ways of compiling layers that this version's engine has."""


class Feature(NamedTuple):
    """One row of the feature table."""

    name: str
    field: str
    """Path in the API, as the user wrote it."""
    built: bool
    asked: Callable[[Features], object]
    """A true value when the feature is in use; it is shown to the user."""
    instead: str = "remove the field"
    """What to do while it is not built."""
    in_engine: bool = False
    """Whether the engine has what no pod of the operator has yet."""


FEATURES: tuple[Feature, ...] = (
    Feature("CPU", "spec.resources", True, lambda f: f.device is Device.Cpu),
    Feature("GPU", "spec.resources.limits[nvidia.com/gpu]", True, lambda f: f.device is Device.Cuda),
    Feature(
        "GPUs without a rank",
        "spec.resources.limits[nvidia.com/gpu]",
        False,
        lambda f: (
            f.gpus * f.nodes > (ranks := f.tensor * f.pipeline)
            and ranks % f.nodes == 0  # otherwise the number of nodes is wrong, whatever the GPUs are
            and f"{f.gpus} GPUs{f' in each of {f.nodes} pods' if f.nodes > 1 else ''}, "
            f"{ranks} {'rank' if ranks == 1 else 'ranks'}"
        ),
        instead="set spec.parallelism so that tensor times pipeline is their number, or ask for a GPU for each rank",
    ),
    Feature("speculative decoding", "spec.engine.speculative", True, lambda f: f.speculative),
    Feature(
        "draft models",
        "spec.engine.speculative",
        True,
        lambda f: f.speculative is SpeculativeMethod.DraftModel and f.speculative,
        instead="set method: Ngram",
    ),
    Feature(
        "draft heads",
        "spec.engine.speculative",
        True,
        lambda f: f.speculative is SpeculativeMethod.Eagle and f.speculative,
        instead="set method: Ngram",
    ),
    Feature(
        "EAGLE-3 heads",
        "spec.engine.speculative",
        True,
        lambda f: f.speculative is SpeculativeMethod.Eagle3 and f.speculative,
        instead="set method: Eagle",
    ),
    Feature(
        "MTP heads",
        "spec.engine.speculative",
        True,
        lambda f: f.speculative is SpeculativeMethod.Mtp and f.speculative,
        instead="set method: Ngram",
    ),
    Feature(
        "draft trees",
        "spec.engine.speculative.topk",
        True,
        lambda f: f.draft_trees and f.speculative in DRAFT_HEADS and f.speculative_topk,
    ),
    Feature(
        "draft trees without a head",
        "spec.engine.speculative.topk",
        False,
        lambda f: f.draft_trees and f.speculative not in DRAFT_HEADS and f"{f.speculative_topk} by {f.speculative}",
        instead=f"use 1, a chain, or one of the methods {', '.join(DRAFT_HEADS)}",
    ),
    Feature("host KV cache", "spec.engine.hostCache", True, lambda f: _bytes(f.host_cache_bytes)),
    Feature(
        "host KV cache in files",
        "spec.engine.hostCache.file",
        True,
        lambda f: f"{f.host_cache_folder} of {_bytes(f.host_cache_file_bytes)}" if f.host_cache_folder else None,
    ),
    Feature(
        "host KV cache in files of several ranks",
        "spec.engine.hostCache.file",
        False,
        lambda f: f.host_cache_folder and f.tensor * f.pipeline > 1 and f"{f.tensor * f.pipeline} ranks",
        instead="remove the field: the host tier itself works on several GPUs",
    ),
    Feature(
        "host KV cache in files with new weights in place",
        "spec.engine.hostCache.file",
        False,
        lambda f: f.host_cache_folder and f.reload and "reload: true",
        instead="remove this field or spec.engine.reload",
    ),
    Feature("CPU weight offload", "spec.engine.cpuOffload", False, lambda f: _bytes(f.cpu_offload_bytes)),
    Feature("LoRA adapters", "spec.engine.lora", False, lambda f: ", ".join(f.lora)),
    Feature("FP8 weights", "spec.engine.quantization", True, lambda f: f.quantization is Quantization.Fp8),
    Feature(
        "GGUF weights",
        "spec.engine.quantization",
        False,
        lambda f: f.quantization is Quantization.Gguf,
        instead="convert the file with graphpod-engine convert, or use Fp8",
    ),
    Feature(
        "KV cache dtype",
        "spec.engine.kvCacheDtype",
        True,
        lambda f: f.kv_cache_dtype is not KvCacheDtype.Auto and f.kv_cache_dtype,
    ),
    Feature("deterministic mode", "spec.engine.deterministic", False, lambda f: f.deterministic),
    Feature("disaggregated role", "spec.role", False, lambda f: f.role is not Role.Both and f.role),
    Feature("tensor parallelism", "spec.parallelism.tensor", True, lambda f: f.tensor > 1 and f.tensor),
    Feature(
        "pipeline parallelism",
        "spec.parallelism.pipeline",
        True,
        lambda f: f.pipeline > 1 and f.pipeline,
    ),
    Feature("several nodes", "spec.parallelism.nodes", True, lambda f: f.nodes > 1 and f.nodes),
    Feature(
        "attention kernels",
        "spec.engine.attention",
        True,
        lambda f: f.attention not in (AttentionBackend.Auto, AttentionBackend.Triton) and f.attention,
    ),
    Feature(
        "Triton attention",
        "spec.engine.attention",
        False,
        lambda f: f.attention is AttentionBackend.Triton and f.attention,
        instead="use one of Auto, Torch, FlashInfer, Fa3",
    ),
    Feature("whole-model compile", "spec.engine.fullCompile", False, lambda f: f.full_compile),
    Feature("sleep", "spec.engine.sleep", True, lambda f: f.sleep),
    Feature("new weights in place", "spec.engine.reload", True, lambda f: f.reload),
    Feature("data-parallel attention", "spec.parallelism.data", False, lambda f: f.data > 1 and f.data),
    Feature(
        "expert parallelism",
        "spec.parallelism.expert",
        True,
        lambda f: f.expert > 1 and f.expert,
    ),
    Feature(
        "expert exchange",
        "spec.parallelism.allToAll",
        False,
        lambda f: f.all_to_all,
        instead="remove the field: each rank computes the tokens of its own experts, and one sum adds them up",
    ),
    Feature("context parallelism", "spec.parallelism.context", False, lambda f: f.context > 1 and f.context),
    Feature("two-batch overlap", "spec.parallelism.twoBatchOverlap", False, lambda f: f.two_batch_overlap),
    Feature("expert rebalancing", "spec.parallelism.expertRebalancing", False, lambda f: f.expert_rebalancing),
    Feature("symmetric memory", "spec.parallelism.symmetricMemory", False, lambda f: f.symmetric_memory),
)
"""Every feature the API can ask for, and whether the engine has it."""


class NotBuilt(NamedTuple):
    """A feature that was asked for and that this engine does not have yet."""

    field: str
    message: str


def _bytes(amount: int | None) -> str | None:
    return None if amount is None else as_quantity(amount)


def is_built(feature: str) -> bool:
    """Whether the engine has the feature of this name; "" is every service's."""
    return not feature or any(row.built for row in FEATURES if row.name == feature)


def not_built(features: Features, request: GraphRequest, *, pods: bool = True) -> tuple[NotBuilt, ...]:
    """Every asked feature that `pods` of the operator do not have, or the engine without them; empty when all of them
    are built."""
    missing = [
        NotBuilt(row.field, f"{row.field}: {_asked(row, asked)} is not built in this version; {row.instead}")
        for row in FEATURES
        if not (row.built or (row.in_engine and not pods)) and (asked := row.asked(features))
    ]
    for phase, built in BUILT_POLICIES.items():
        policy = request.policy(phase)
        if policy is not Policy.Auto and policy not in built:
            missing.append(_choice(f"spec.graph.{phase}", policy, (Policy.Auto, *built)))
    if request.compile is not CompileMode.Auto and request.compile not in BUILT_COMPILE:
        missing.append(_choice("spec.graph.compile", request.compile, (CompileMode.Auto, *BUILT_COMPILE)))
    return tuple(missing)


def _asked(row: Feature, value: object) -> str:
    """The feature's name, with what was asked of it where there is a choice."""
    return row.name if value is True else f"{row.name} ({value})"


def _choice(field: str, asked: str, choices: tuple[str, ...]) -> NotBuilt:
    message = f"{field}: {asked} is not built in this version; use one of {', '.join(choices)}"
    return NotBuilt(field, message)

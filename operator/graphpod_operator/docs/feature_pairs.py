"""Every two features together: what the rules make of them, in prefill and in decode. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from graphpod_policy import (
    AllToAll,
    Device,
    Facts,
    Features,
    GraphRequest,
    KvCacheDtype,
    ModelFacts,
    Outcome,
    Phase,
    Plan,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
    refine,
    resolve,
)
from graphpod_policy.rules import Case, exclusions
from graphpod_policy.rules.policies import NOT_BUILT

PLAIN = Features(device=Device.Cuda, gpus=8, max_batch=32)
"""A service on GPUs with no feature at all."""

MULTIMODAL = ModelFacts("Gemma3ForConditionalGeneration", 26, 1152, 6912, 4, 1, 256, 262144, multimodal=True)
HYBRID = ModelFacts("NemotronHForCausalLM", 52, 4096, 21504, 32, 8, 128, 131072)


@dataclass(frozen=True, slots=True)
class Crossed:
    """One feature under the id of the rule about it: what it changes of a plain service, or what the model shows."""

    name: str
    means: str
    changes: dict[str, Any] = field(default_factory=dict)
    model: ModelFacts | None = None

    @property
    def features(self) -> Features:
        """A service with this feature alone."""
        return replace(PLAIN, **self.changes)

    @property
    def facts(self) -> Facts:
        """What the model shows."""
        return Facts(model=self.model)


GROUPS: tuple[tuple[str, tuple[Crossed, ...]], ...] = (
    (
        "Parallelism",
        (
            Crossed("TensorParallel", "tensor 4", {"tensor": 4}),
            Crossed("PipelineParallel", "pipeline 2", {"pipeline": 2}),
            Crossed("DataParallelAttention", "data 2", {"data": 2}),
            Crossed("ExpertParallel", "expert 8, DeepEp", {"expert": 8, "all_to_all": AllToAll.DeepEp}),
        ),
    ),
    (
        "Memory",
        (
            Crossed("CpuOffload", "weights offloaded", {"cpu_offload_bytes": 1 << 30}),
            Crossed("HostKvCache", "host KV cache", {"host_cache_bytes": 1 << 30}),
        ),
    ),
    (
        "Numbers",
        (
            Crossed("Fp8Kv", "KV cache in FP8", {"kv_cache_dtype": KvCacheDtype.Fp8}),
            Crossed("Fp8Weights", "weights in FP8", {"quantization": Quantization.Fp8}),
            Crossed("FullTorchCompile", "whole model compiled", {"full_compile": True}),
            Crossed("Deterministic", "deterministic", {"deterministic": True}),
        ),
    ),
    (
        "Models and roles",
        (
            Crossed("SpeculativeAllowed", "EAGLE-3", {"speculative": SpeculativeMethod.Eagle3}),
            Crossed("LoRA", "adapters", {"lora": ("a",)}),
            Crossed("Multimodal", "Gemma 3 with images", model=MULTIMODAL),
            Crossed("HybridModel", "Mamba layers", model=HYBRID),
            Crossed("DisaggregatedPrefill", "role Prefill", {"role": Role.Prefill}),
            Crossed("DisaggregatedDecode", "role Decode", {"role": Role.Decode}),
            Crossed("NoCuda", "on a CPU", {"device": Device.Cpu, "gpus": 0}),
        ),
    ),
)
"""The features of the rules, by group."""

CROSSED: tuple[Crossed, ...] = tuple(row for _, rows in GROUPS for row in rows)


@dataclass(frozen=True, slots=True)
class Cell:
    """What the rules say in one phase: the policy that Auto gets, and the ids of the rules that spoke; those that
    excluded something come first. `piecewise` are the ids that stand against Piecewise by name (prefill).
    """

    policy: Policy
    rules: tuple[str, ...]
    piecewise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two features together (or one with itself: alone)."""

    one: Crossed
    other: Crossed
    prefill: Cell
    decode: Cell


def together(one: Crossed, other: Crossed) -> Pair | None:
    """What the rules say of both; None where no service can have both."""
    if one is not other and (one.changes.keys() & other.changes.keys() or (one.model and other.model)):
        return None
    features = replace(PLAIN, **one.changes, **({} if one is other else other.changes))
    facts = Facts(model=one.model or other.model)
    plan = refine(resolve(features, GraphRequest()), facts)
    against = exclusions(Case(features, facts, Phase.Prefill, Policy.Piecewise))
    return Pair(
        one,
        other,
        replace(_cell(plan, Phase.Prefill), piecewise=_unique(rule.id for rule in against if rule.id != NOT_BUILT)),
        _cell(plan, Phase.Decode),
    )


def pairs() -> Iterator[Pair]:
    """Every feature alone, and every two that can be together."""
    for one in CROSSED:
        yield from filter(None, [together(one, one)])
    for one, other in combinations(CROSSED, 2):
        yield from filter(None, [together(one, other)])


def _cell(plan: Plan, phase: Phase) -> Cell:
    reasons = sorted(
        (decision for decision in plan.decisions if decision.phase is phase and decision.rule != NOT_BUILT),
        key=lambda decision: decision.outcome is Outcome.Adjusted,
    )
    return Cell(plan.phases[phase].planned, _unique(decision.rule for decision in reasons))


def _unique(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))

"""The limits that a pod derives for itself where its configuration says Auto.

A plan is made for the most that any pod could derive. The pod knows more: first the model and its device, then what
the plan has become there, at last the KV cache.
"""

from dataclasses import replace

from graphpod_policy import EngineConfig, Facts, Phase, Plan, limits
from graphpod_runtime.wire.report import ServedLimits

FIELDS = {"max_model_len": "maxModelLen", "max_batch": "maxBatch"}
"""What may be Auto, in the API's words."""


def widest(config: EngineConfig, known: Facts, plan: Plan) -> EngineConfig:
    """`config` with the longest context and the largest batch there can be, by the ladders that `plan` has left."""
    return replace(
        config, max_model_len=limits.context(config.feature_set(), known), max_batch=batch(config, known, plan)
    )


def rows(config: EngineConfig, plan: Plan) -> dict[Phase, int]:
    """Most rows of one pass of each phase, which static buffers are made for: a pass of `config`, which has its limits,
    or a graph of `plan`. The ladders that `config` was written with are those of the largest GPUs.
    """
    most = {Phase.Prefill: config.prefill_chunk, Phase.Decode: config.max_batch or 1}
    if config.features.speculative is not None:
        most[Phase.Decode] = limits.decode_rows(plan.features, most[Phase.Decode])
    return {phase: max(count, *plan.rows(phase)[-1:], 1) for phase, count in most.items()}


def batch(config: EngineConfig, known: Facts, plan: Plan) -> int:
    """Sequences of the largest batch, which for Auto no ladder that `plan` has lost sizes of is too short for."""
    return limits.batch(config.feature_set(), known, plan.phases[Phase.Decode].sizes)


def context(config: EngineConfig, known: Facts, kv_tokens: int) -> int:
    """Tokens of the longest sequence. Auto: no more than the KV cache holds."""
    longest = limits.context(config.feature_set(), known)
    return min(longest, kv_tokens) if config.max_model_len is None else longest


def served(config: EngineConfig, derived: EngineConfig) -> ServedLimits:
    """What is reported of `derived`, which was made from `config`."""
    auto = tuple(word for name, word in FIELDS.items() if getattr(config, name) is None)
    return ServedLimits(derived.max_model_len, derived.max_batch, auto)

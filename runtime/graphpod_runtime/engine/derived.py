"""The limits that a pod derives for itself where its configuration says Auto.

A plan is made for the most that any pod could derive. The pod knows more: first the model and its device, then what
the plan has become there, at last the KV cache.
"""

from dataclasses import replace

from graphpod_policy import EngineConfig, Facts, Phase, Plan, limits
from graphpod_runtime.graphs.report import Limits

FIELDS = {"max_model_len": "maxModelLen", "max_batch": "maxBatch"}
"""What may be Auto, in the API's words."""


def widest(config: EngineConfig, known: Facts) -> EngineConfig:
    """`config` with the longest context and the largest batch there can be: what static buffers are made for."""
    features = config.feature_set()
    return replace(
        config,
        max_model_len=limits.context(features, known),
        max_batch=limits.batch(features, known, config.graph.decode.sizes),
    )


def batch(config: EngineConfig, known: Facts, plan: Plan) -> int:
    """Sequences of the largest batch, which for Auto no ladder that `plan` has lost sizes of is too short for."""
    return limits.batch(config.feature_set(), known, plan.phases[Phase.Decode].sizes)


def context(config: EngineConfig, known: Facts, kv_tokens: int) -> int:
    """Tokens of the longest sequence. Auto: no more than the KV cache holds."""
    longest = limits.context(config.feature_set(), known)
    return min(longest, kv_tokens) if config.max_model_len is None else longest


def served(config: EngineConfig, derived: EngineConfig) -> Limits:
    """What is reported of `derived`, which was made from `config`."""
    auto = tuple(word for name, word in FIELDS.items() if getattr(config, name) is None)
    return Limits(derived.max_model_len, derived.max_batch, auto)

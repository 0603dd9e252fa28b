"""What an engine's weights, KV cache and activations take of one device, estimated from the model's shape. Bytes.

Configurations whose dtype is settled (`can_start.settled`).
"""

from graphpod_policy import limits
from graphpod_policy.config import EngineConfig
from graphpod_policy.cost import pool_bytes
from graphpod_policy.dtype import DTYPE_BYTES
from graphpod_policy.facts import Facts, ModelFacts
from graphpod_policy.words import KvCacheDtype, Phase

MARGIN = 0.1
"""Part of the free memory that the KV cache leaves alone: front, sockets, allocator fragmentation."""


def weights_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """Weights on one device."""
    spread = config.features.tensor * config.features.pipeline
    return model.params * DTYPE_BYTES[config.element] // spread


def pages_of(config: EngineConfig, tokens: int) -> int:
    """Pages of one sequence of `tokens`."""
    return -(-tokens // config.page_size)


def page_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """One page: keys and values of every layer."""
    element = 1 if config.features.kv_cache_dtype is KvCacheDtype.Fp8 else DTYPE_BYTES[config.element]
    return 2 * model.layers * config.page_size * model.kv_heads * model.head_dim * element


def activation_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """The peak of the largest prefill pass."""
    return pool_bytes(Phase.Prefill, config.prefill_chunk, config.feature_set(), model)


def capture_room(config: EngineConfig, known: Facts, available: int) -> int:
    """What captures may take of `available`, weights already there: all but the margin and the least KV cache that can
    serve, which is what kvCacheMemory says, else one context, where it is derived the shortest that may be. `known` has
    the model.
    """
    assert known.model is not None
    one_context = pages_of(config, limits.least_context(config.feature_set(), known)) * page_bytes(config, known.model)
    return max(0, int(available * (1 - MARGIN)) - (config.kv_cache_bytes or one_context))

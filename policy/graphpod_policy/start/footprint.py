"""What an engine's weights, KV cache and activations take of one device, estimated from the model's shape. Bytes.

Configurations whose dtype is settled (`can_start.settled`).
"""

from collections.abc import Mapping
from dataclasses import replace

from graphpod_policy import limits
from graphpod_policy.attention import most_parts
from graphpod_policy.config import EngineConfig
from graphpod_policy.cost.cost import pool_bytes
from graphpod_policy.cost.selfcheck import LONG_ROW
from graphpod_policy.dtype import DTYPE_BYTES
from graphpod_policy.enums import Device, KvCacheDtype, Phase, PrefixCache, Quantization, SpeculativeMethod
from graphpod_policy.facts import Facts, ModelFacts
from graphpod_policy.model.stages import stage_layers
from graphpod_policy.plan import Plan

CHECK_COPIES = 1.5
"""Of the pages of one self-check: what the replay wrote, and a few layers of what is drawn or compared."""
CHECK_LAYERS = 0.25
"""Of the same pages, those layers alone: a cache of more than twice as many pages keeps there what the replay wrote."""
CHECK_ROOM = 2.25
"""Times the pages of a self-check that such a cache is to have: it may become a little smaller than it is planned."""
CHECKED_PAGES = 4
"""Of one sequence of a checked decode step, at most; but for the first one, which has LONG_ROW tokens."""
PREFIX_TOKENS = 1 << 22
"""More than a GPU holds of a real model. It bounds tiny models, because the engine lists pages one by one."""
STAGING_BYTES = 48 << 20
"""Of a GPU, for the copies of the host tier in each direction."""
CANDIDATE_BYTES = 128
"""Of a draft that a tree may have: its numbers twice, once a level and once together, and what a sort keeps."""
STREAM_STAGING_BYTES = 384 << 20
"""Of the host, for streamed weights on their way, in each process that reads them; a larger tensor has as many as it
needs."""
MOST_DRAFTED = 64
"""Sequences of a pass with the drafts of a model where `maxBatch` of these is Auto: it pays for few, and each size is a
graph of all steps."""
MARGIN = 0.1
"""Part of the free memory that the KV cache leaves alone: front, sockets, allocator fragmentation."""


def weights_bytes(config: EngineConfig, model: ModelFacts, stage: int = 0) -> int:
    """Weights on one device, those of its draft model among them; a byte for each that is in FP8 in the checkpoint or
    becomes so when it is loaded. Of a pipeline those of `stage`: no other has more than the first."""
    spread = config.features
    params = model.params if spread.pipeline == 1 else _stage_params(model, spread.pipeline, stage)
    savings = fp8_savings(config, model) * stage_layers(model.layers, spread.pipeline)[stage] // model.layers
    own = (params * DTYPE_BYTES[config.element] - savings) // spread.tensor
    own += _undivided_params(config, model, stage) * DTYPE_BYTES[config.element]
    return own if model.draft is None else own + weights_bytes(_drafting(config, model.draft), model.draft)


def _undivided_params(config: EngineConfig, model: ModelFacts, stage: int) -> int:
    """Weights that ranks do not divide, or divide less, of one stage of a pipeline: each has the router of a mixture,
    what joins token and state in a head, what makes latents, and a key-value head that it may share with others."""
    spread, again = config.features, 2 * model.head_dim * max(0, config.features.tensor - model.kv_heads)
    if model.latent is not None:
        again = model.latent.shared * (spread.tensor - 1)
    layers = stage_layers(model.layers, spread.pipeline)[stage]
    routers = min(layers, model.sparse_layers) * model.hidden * model.experts
    joins = 0 if model.head is None else model.joining * (spread.tensor - 1) // spread.tensor
    return routers + joins + layers * model.hidden * again // spread.tensor


def _drafting(config: EngineConfig, draft: ModelFacts) -> EngineConfig:
    """`config` for a draft model, of which each rank has all, or for a head, whose layers ranks share."""
    tensor = 1 if draft.head is None else config.features.tensor
    return replace(config, features=replace(config.features, tensor=tensor, pipeline=1))


def _stage_params(model: ModelFacts, stages: int, stage: int) -> int:
    """Of one stage of a pipeline: its layers, at the first one the embedding, at the last one the head."""
    table, layers = model.vocab * model.hidden, stage_layers(model.layers, stages)
    tables = table * (1 if model.tied else 2)
    dense = replace(model, layers=1, experts=0).params - tables
    own = layers[stage] * dense + (table if stage in (0, stages - 1) else 0)
    if not model.sparse_layers:
        return own
    # Where some layers are dense, those with experts may all be of one stage.
    sparse = replace(model, layers=1, expert_layers=None).params - tables
    return own + min(layers[stage], model.sparse_layers) * (sparse - dense)


def fp8_savings(config: EngineConfig, model: ModelFacts) -> int:
    """Bytes that FP8 takes less than plain weights would; their scales are too few to count. Heads stay plain."""
    if model.head is not None:
        return 0
    fp8 = model.fp8_weights
    if not fp8 and config.features.quantization is Quantization.Fp8 and not model.experts:
        fp8 = model.layers * sum(model.matrices.values())
    return fp8 * (DTYPE_BYTES[config.element] - 1)


def pages_of(config: EngineConfig, tokens: int) -> int:
    """Pages of one sequence of `tokens`."""
    return -(-tokens // config.page_size)


def page_bytes(config: EngineConfig, model: ModelFacts, stage: int = 0) -> int:
    """One page on one device: keys and values of every layer that it has, those of a draft model, too. Of a pipeline
    those of `stage`: all have the same number of pages, and the first one has most layers."""
    element = 1 if config.features.kv_cache_dtype is KvCacheDtype.Fp8 else DTYPE_BYTES[config.element]
    kv_heads = max(1, model.kv_heads // config.features.tensor)
    layers = stage_layers(model.layers, config.features.pipeline)[stage]
    own = layers * config.page_size * kv_heads * (model.cached // model.kv_heads) * element
    return own if model.draft is None else own + page_bytes(_drafting(config, model.draft), model.draft)


def host_tier_bytes(config: EngineConfig) -> int:
    """What the host tier of the KV cache takes of the memory that the cache itself is in: on a CPU its pool, of which
    each rank has a share, of a GPU's memory what stages its copies."""
    pool = config.features.host_cache_bytes
    if not pool:
        return 0
    return pool // config.features.ranks_of_node if config.features.device is Device.Cpu else 2 * STAGING_BYTES


def host_page_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """One page in the host tier of a machine, at most: what its ranks have of it. What drafts has none there."""
    spread, own = config.features, replace(model, draft=None)
    each = [page_bytes(config, own, rank // spread.tensor) for rank in range(spread.ranks)]
    here = spread.ranks_of_node
    return max(sum(each[first : first + here]) for first in range(0, len(each), here))


def read_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """What all ranks read of a streamed checkpoint in 16 bits, or in FP8 where it is. Each rank reads matrices whole
    whose inputs ranks divide: their rows lie too close together to ask for parts of them. What makes latents it has."""
    spread = config.features
    alone = replace(spread, tensor=1, pipeline=1, expert=1, quantization=None)
    once = weights_bytes(replace(config, dtype="bfloat16", features=alone), model)
    width, latents = (model.head_dim, 0) if model.latent is None else (model.latent.value, model.latent.shared)
    out = model.layers * (model.heads * width + latents)
    down = model.dense_layers * model.intermediate + model.sparse_layers * model.shared_intermediate
    experts = model.sparse_layers * model.experts * (model.expert_intermediate or model.intermediate)
    again = (out + down) * (spread.tensor - 1) + experts * (max(1, spread.tensor // spread.expert) - 1)
    return once + again * model.hidden * once // model.params


def stream_bytes(config: EngineConfig, model: ModelFacts | None) -> int:
    """What streamed weights on their way take of the host at most, in each process and while they are read; 0 without
    a stream. The largest tensor is that of the vocabulary, or of an MLP, in 16 bits."""
    if config.model.stream is None:
        return 0
    if model is None:
        return STREAM_STAGING_BYTES
    largest = max(model.vocab, model.intermediate) * model.hidden * 2
    return min(max(STREAM_STAGING_BYTES, largest), model.params * 2)


def activation_bytes(config: EngineConfig, model: ModelFacts) -> int:
    """The peak of the largest prefill pass."""
    return pool_bytes(Phase.Prefill, config.prefill_chunk, config.feature_set(), model)


def decode_scratch_bytes(rows: int, model: ModelFacts, known: Facts, device: Device) -> int:
    """What our decode kernel keeps for `rows` rows: for each part of a row's context, and for each head, a sum, its
    largest score and its mass in single precision; a counter for each key head. 0 where torch decodes.
    """
    if device is Device.Cpu or known.reads_whole_tables:
        return 0
    return 4 * (most_parts(rows) * model.heads * (model.head_dim + 2) + rows * model.kv_heads)


def most_drafted(config: EngineConfig) -> int:
    """Sequences of the largest pass with the drafts of a model."""
    drafted = config.features.speculative_max_batch or MOST_DRAFTED
    return min(config.max_batch or drafted, drafted)


def drafting_bytes(config: EngineConfig, known: Facts) -> int:
    """What the graphs of draft steps take, and their attention. The first step has two rows of a sequence; that of a
    head has all that the latest pass may have left."""
    if known.model is None or (draft := known.model.draft) is None:
        return 0
    features = config.feature_set()
    each = 2 if draft.head is None else max(features.speculative_steps + 1, features.speculative_topk)
    rows = most_drafted(config) * each
    plain = replace(_drafting(config, draft).feature_set(), speculative=None)
    scratch = decode_scratch_bytes(rows, draft, known, config.features.device)
    chains = pool_bytes(Phase.Decode, rows, plain, draft) + scratch + returned_states_bytes(config, known)
    return chains + _branches_bytes(config, draft)


def _branches_bytes(config: EngineConfig, draft: ModelFacts) -> int:
    """What steps of trees have next to their logits: those in single precision, their log-probabilities, and all
    candidates with their order."""
    features = config.feature_set()
    if not features.draft_trees:
        return 0
    steps, topk = features.speculative_steps, features.speculative_topk
    candidates = topk + (steps - 1) * topk * topk
    return most_drafted(config) * (topk * draft.vocab * 2 * 4 + candidates * CANDIDATE_BYTES)


def returned_states_bytes(config: EngineConfig, known: Facts) -> int:
    """What passes of the model return for a head of EAGLE-3 next to their own results: a buffer of each phase."""
    features = config.feature_set()
    if _state_layers(known) < 2:
        return 0
    rows = limits.decode_rows(features, limits.batch(features, known)) + config.prefill_chunk
    return rows * _state_bytes(config, known)


def kept_states_bytes(config: EngineConfig, known: Facts) -> int:
    """Hidden states of the model that a head has of the latest pass of each seat; there are seats for two batches, and
    one of padding."""
    features = config.feature_set()
    seats = 2 * limits.batch(features, known) + 1
    return seats * (features.speculative_steps + 1) * _state_bytes(config, known)


def _state_bytes(config: EngineConfig, known: Facts) -> int:
    """Of one token; 0 where no head reads any."""
    hidden = 0 if known.model is None else known.model.hidden
    return _state_layers(known) * hidden * DTYPE_BYTES[config.element]


def _state_layers(known: Facts) -> int:
    """Layers of the model whose states a head reads."""
    head = known.model and known.model.draft and known.model.draft.head
    return 0 if head is None else 3 if head is SpeculativeMethod.Eagle3 else 1


def capture_room(config: EngineConfig, known: Facts, available: int) -> int:
    """What captures may take of `available`, weights already there: all but the margin, what draft steps take, and the
    least KV cache that can serve, which is what kvCacheMemory says, else one context, where it is derived the shortest
    that may be. `known` has the model.
    """
    assert known.model is not None
    one_context = pages_of(config, limits.least_context(config.feature_set(), known)) * page_bytes(config, known.model)
    kept = (config.kv_cache_bytes or one_context) + drafting_bytes(config, known)
    return max(0, int(available * (1 - MARGIN)) - kept)


def kv_tokens(config: EngineConfig, plan: Plan, known: Facts, free: int | None) -> int | None:
    """Tokens that the KV cache of a pod would hold, by estimate. `config` has the type of the weights and the prefill
    chunk of its place; `plan` is refined with `known`; `free` is what a GPU has before the weights, on a CPU the
    container's memory, None for one without a limit. None: not known.
    """
    features, model = plan.features, known.model
    if model is None:
        return None
    page = page_bytes(config, model)
    context = pages_of(config, limits.context(features, known))
    batch = limits.batch(features, known, plan.phases[Phase.Decode].sizes)
    if config.kv_cache_bytes is not None:
        return config.kv_cache_bytes // page * config.page_size
    if free is None:
        return batch * context * config.page_size if features.device is Device.Cpu else None
    captures = {phase: cost.bytes for phase, cost in plan.costs.items()}
    rows = max(batch, *plan.rows(Phase.Decode)[-1:], 1)
    buffers = decode_scratch_bytes(rows, model, known, features.device)
    buffers += kept_states_bytes(config, known)
    left = free - weights_bytes(config, model) - buffers - captures[Phase.Prefill] - host_tier_bytes(config)
    reserve = activation_bytes(config, model) + captures[Phase.Decode] + drafting_bytes(config, known)
    least = pages_of(config, limits.least_context(features, known))
    room = cache_room(config, largest_sizes(plan), left, reserve, least, page)
    return max(0, min(most_pages(config, batch, context), room // page)) * config.page_size


def most_pages(config: EngineConfig, batch: int, context: int) -> int:
    """Pages that a KV cache can use: full contexts of `batch` sequences, `context` pages each. On a GPU with a prefix
    cache more pages hold more prefixes.
    """
    full = batch * context
    sharing = config.prefix_cache is PrefixCache.Auto and config.features.device is Device.Cuda
    return max(full, PREFIX_TOKENS // config.page_size) if sharing else full


def cache_room(
    config: EngineConfig, largest: Mapping[Phase, int], free: int, reserve: int, least: int, page: int
) -> int:
    """Bytes of `free` that the KV cache may take next to `reserve` and a margin that holds the self-check of the
    `largest` graphs, which checks no more pages than the cache has. Whether a service starts does not depend on the
    check: `least` pages go before it.
    """
    plain = int(free * (1 - MARGIN)) - reserve
    if not (checked := checked_pages(config, largest) * page):
        return plain
    kept_in_cache = free - reserve - int(CHECK_LAYERS * checked)
    if min(plain, kept_in_cache) < CHECK_ROOM * checked:
        kept_in_cache = 0
    kept_aside = max(free - reserve - int(CHECK_COPIES * checked), int((free - reserve) / (1 + CHECK_COPIES)))
    return max(min(plain, least * page), min(plain, max(kept_in_cache, kept_aside)))


def largest_sizes(plan: Plan) -> dict[Phase, int]:
    """The rows of the largest graph of each phase that has any."""
    return {phase: plan.rows(phase)[-1] for phase, row in plan.phases.items() if row.sizes}


def checked_pages(config: EngineConfig, largest: Mapping[Phase, int]) -> int:
    """Pages of the KV cache that the self-check of each phase's `largest` graph uses on a GPU, at most; 0 where no
    graph is. A CPU's share of free memory is enough for what a check needs.
    """
    device = config.features.device
    if device is Device.Cpu:
        return 0
    long_row = pages_of(config, min(LONG_ROW[device], config.max_model_len or LONG_ROW[device]))
    rows = largest.get(Phase.Decode, 0)
    # The lengths are drawn: the pages that half of the rows leave over hold a long one of a large step.
    decode = max(CHECKED_PAGES * rows, (CHECKED_PAGES - 1) * rows + long_row) if rows else 0
    prefill = pages_of(config, largest[Phase.Prefill]) + 2 if Phase.Prefill in largest else 0
    return max(prefill, decode)

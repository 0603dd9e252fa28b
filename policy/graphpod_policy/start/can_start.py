"""Whether an engine can start, as far as it can be known before it has its weights, and why not.

`graphpod explain` says it, the operator refuses what the spec alone decides, and the engine ends by it: one function,
so that none of them can drift. Pure and total: what is not known stands against nothing. The engine's deeper checks
(tensors of a checkpoint, measured memory) come after it.
"""

from collections.abc import Iterator
from dataclasses import replace

from graphpod_policy import limits
from graphpod_policy.attention import Choice, Work, attention_for, built_ahead
from graphpod_policy.config import EngineConfig
from graphpod_policy.dtype import DtypeChoice, dtype_for
from graphpod_policy.engine_features import not_built
from graphpod_policy.enums import (
    AttentionBackend,
    Device,
    KvCacheDtype,
    ModelPath,
    PrefixCache,
    Quantization,
    SpeculativeMethod,
)
from graphpod_policy.exit_codes import ExitCode
from graphpod_policy.facts import NOTHING_KNOWN, Facts, ModelFacts
from graphpod_policy.node import NOWHERE, Capability, NodeFacts, processes_bytes
from graphpod_policy.plan import Decision, Plan
from graphpod_policy.resolution.resolve import chunk_there, refine
from graphpod_policy.start.draft_trees import tree_too_large
from graphpod_policy.start.footprint import (
    MARGIN,
    activation_bytes,
    capture_room,
    host_tier_bytes,
    kept_states_bytes,
    page_bytes,
    pages_of,
    stream_bytes,
    weights_bytes,
)
from graphpod_policy.start.not_streamed import not_streamed
from graphpod_policy.start.obstacle import SUSPENDED, Obstacle
from graphpod_policy.start.parallelism import gpus_missing, indivisible, more_ranks, not_by_ranks, processes_too_large
from graphpod_policy.units import as_quantity, size

MIB = 1 << 20
FP8_PRODUCTS: Capability = (8, 9)
"""The first GPUs that multiply FP8."""


def can_start(
    config: EngineConfig,
    plan: Plan,
    model: ModelFacts | None = None,
    node: NodeFacts = NOWHERE,
    no_pods: tuple[str, str] | None = None,
) -> tuple[Obstacle, ...]:
    """All obstacles to a start of `config`, which was made from `plan`; the engine ends by the first. `no_pods`
    says why no pod is to exist, and the step to have some, if so.
    """
    dtype = _dtype(config, model, node)
    config = replace(config, dtype=dtype.dtype)
    found = [
        Obstacle.of(ExitCode.FeatureNotBuilt, row.message) for row in not_built(plan.features, plan.request, pods=False)
    ]
    found += not_streamed(config, model)
    found += gpus_missing(config, node)
    if model is not None and model.not_built is not None:
        found.append(Obstacle.of(ExitCode.ModelUnsupported, f"{config.model.name}: {model.not_built}"))
    found += indivisible(config, model)
    found += not_by_ranks(config, model)
    found += context_too_long(config, model)
    if model is not None and (misfit := draft_misfit(config, model)) is not None:
        found.append(misfit)
    found += _drafts_by_transformers(config, model)
    found += tree_too_large(config)
    if dtype.refused:
        found.append(Obstacle.of(ExitCode.DtypeUnavailable, dtype.refused))
    found += _fp8_weights(config, model, node)
    found += _fp8_not_built(config, model)
    choice = attention_there(config, model, node)
    if choice.kernels is None and config.features.attention is not AttentionBackend.Triton:  # that is not built
        found.append(Obstacle.of(ExitCode.AttentionUnavailable, choice.because))
    if model is not None and model.draft is not None:
        choice = attention_there(config, model.draft, node)
        if choice.kernels is None and config.features.attention is not AttentionBackend.Triton:
            what = f"spec.engine.speculative.draftModel: {choice.because}"
            found.append(Obstacle.of(ExitCode.AttentionUnavailable, what))
    facts = start_facts(config, model, node)
    pool = tuple(_host_cache(config, node))
    found += pool
    found += processes_too_large(config, model, node)
    memory = _memory(replace(config, prefill_chunk=chunk_there(plan, facts)), facts, node)
    found += (one for one in memory if one.reason not in {problem.reason for problem in pool})
    if (refused := (plan if facts == NOTHING_KNOWN else refine(plan, facts)).refused) is not None:
        found.append(policy_refused(refused))
    if no_pods:
        why, step = no_pods
        found.append(Obstacle(SUSPENDED, f"no pod will start: {why}", step, None))
    return tuple(found)


def settled(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> tuple[EngineConfig, str]:
    """`config` with the type of weights and activations that Auto is there, and why where it is not the usual one."""
    choice = _dtype(config, model, node)
    return replace(config, dtype=choice.dtype), choice.because


def start_facts(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> Facts:
    """The facts that are known before the weights are loaded."""
    config, _ = settled(config, model, node)
    whole = attention_there(config, model, node).reads_whole_tables
    known = Facts(model=model, gpu_memory_bytes=node.memory_bytes, reads_whole_tables=whole)
    if model is None or node.free_bytes is None:
        return known
    weights = weights_bytes(config, model)
    if weights > node.free_bytes:  # an obstacle says so; what graphs may take is no question then
        return known
    left = node.free_bytes - weights - host_tier_bytes(config) - kept_states_bytes(config, known)
    free = capture_room(config, known, max(0, left))
    return replace(known, free_bytes=free)


def context_too_long(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """That maxModelLen is more than `model` can have."""
    longest = model.max_position if model is not None else None
    if longest is not None and config.max_model_len is not None and config.max_model_len > longest:
        what = f"spec.engine.maxModelLen {config.max_model_len} is more than the {longest} positions of "
        yield Obstacle.of(ExitCode.ContextTooLong, what + config.model.name)


def _drafts_by_transformers(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """That a model which transformers computes is to draft, or is to be drafted for by another."""
    method = config.features.speculative
    if model is None or method in (None, SpeculativeMethod.Ngram):
        return
    for one in (model, model.draft):
        if one is not None and one.path is ModelPath.Transformers:
            what = f"spec.engine.speculative.method: {method} is not built for {one.architecture}"
            yield Obstacle.of(
                ExitCode.FeatureNotBuilt,
                f"{what}, which transformers computes",
                "use Ngram, or remove spec.engine.speculative",
            )


def draft_misfit(config: EngineConfig, model: ModelFacts) -> Obstacle | None:
    """Why the draft model or head of `model` cannot draft for it, if it is known and so."""
    draft, longest = model.draft, config.max_model_len or model.max_position
    if draft is None:
        return None
    where = "spec.engine.speculative.draftModel"
    if draft.not_built is not None:
        if draft.head is SpeculativeMethod.Mtp:
            what = f"spec.engine.speculative.method: {draft.head}: {config.model.name}: {draft.not_built}"
            return Obstacle.of(ExitCode.ModelUnsupported, what, "use Ngram, or remove spec.engine.speculative")
        return Obstacle.of(ExitCode.ModelUnsupported, f"{where}: {draft.not_built}")
    if draft.head is not None:
        return _head_misfit(where, config, model, draft)
    if draft.vocab != model.vocab:
        what = f"{where}: it has a vocabulary of {draft.vocab} tokens, and {config.model.name} one of {model.vocab}"
        return Obstacle.of(ExitCode.ModelUnsupported, what, "use a smaller model with the same number of tokens")
    if draft.max_position is not None and longest is not None and draft.max_position < longest:
        what = f"{where}: it has {draft.max_position} positions, and requests may have {longest} tokens"
        return Obstacle.of(
            ExitCode.ContextTooLong, what, f"set spec.engine.maxModelLen to {draft.max_position} or less"
        )
    return None


def _head_misfit(where: str, config: EngineConfig, model: ModelFacts, head: ModelFacts) -> Obstacle | None:
    """Positions stand against no head: its layers have as many as the model."""
    name, step = config.model.name, f"use a head that was trained for {config.model.name}"
    if head.hidden != model.hidden:
        what = f"{where}: it reads hidden states of {head.hidden} elements, and those of {name} have {model.hidden}"
        return Obstacle.of(ExitCode.ModelUnsupported, what, step)
    if head.vocab != model.vocab:
        what = f"{where}: it drafts for a vocabulary of {head.vocab} tokens, and {name} has one of {model.vocab}"
        return Obstacle.of(ExitCode.ModelUnsupported, what, step)
    topk, drafted = config.features.speculative_topk, head.draft_vocab or head.vocab
    if topk > drafted:
        what = f"spec.engine.speculative.topk: {topk} branches at each step, and the draft head knows {drafted} tokens"
        return Obstacle.of(ExitCode.SettingInvalid, what, f"set spec.engine.speculative.topk to {drafted} or less")
    return None


def _fp8_weights(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> Iterator[Obstacle]:
    if config.features.quantization is Quantization.Fp8:
        where = "spec.engine.quantization: Fp8"
    elif model is not None and model.fp8_weights:
        where = f"{config.model.name} has FP8 weights"
    elif model is not None and model.draft is not None and model.draft.fp8_weights:
        where = "spec.engine.speculative.draftModel has FP8 weights"
    else:
        return
    if config.features.device is Device.Cuda and node.capability is not None and node.capability < FP8_PRODUCTS:
        (major, minor), (least, after) = node.capability, FP8_PRODUCTS
        what = f"{where}: a GPU of compute capability {major}.{minor} multiplies no FP8, which {least}.{after} does"
        step = "use an L4, L40S, H100 or newer, or 16-bit weights"
        yield Obstacle.of(ExitCode.DtypeUnavailable, what, step)


def _fp8_not_built(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """That weights of experts, of attention over latents, or of a model that transformers computes, are to become
    FP8."""
    if config.features.quantization is Quantization.Fp8:
        for one in (model, model and model.draft):
            if one is not None and one.path is ModelPath.Transformers:
                whose = f"{one.architecture}, which transformers computes"
            elif one is not None and one.experts:
                whose = f"the experts of {one.architecture}"
            elif one is not None and one.latent is not None:
                whose = f"the latent attention of {one.architecture}"
            else:
                continue
            what = f"spec.engine.quantization: Fp8 is not built for {whose}"
            yield Obstacle.of(ExitCode.FeatureNotBuilt, what, "remove it, and use 16-bit weights")


def _dtype(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> DtypeChoice:
    return dtype_for(config.dtype, config.features.device, node.capability, model.architecture if model else "")


def attention_there(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> Choice:
    """Which kernels compute attention of a settled `config`, and why."""
    features, dtype = config.features, config.element
    fp8 = features.kv_cache_dtype is KvCacheDtype.Fp8
    work = Work(
        device=features.device,
        dtype=dtype,
        kv_dtype="float8_e4m3fn" if fp8 else dtype,
        architecture=model.architecture if model else "",
        head_dim=model.head_dim if model else None,
        windowed=model.windowed if model else False,
        plain_scores=model.plain_scores if model else True,
        capability=node.capability,
        kernels=node.kernels or (built_ahead(model.head_dim, dtype, fp8) if model else None),
    )
    return attention_for(work, features.attention)


def _memory(config: EngineConfig, known: Facts, node: NodeFacts) -> Iterator[Obstacle]:
    """Weights, activations and the least KV cache against what is free. Graphs take what is left, or step aside."""
    if (model := known.model) is None:
        if config.features.device is Device.Cpu and node.free_bytes == 0:
            taken = size(processes_bytes(config.features.ranks_of_node))
            what = f"the memory limit leaves nothing for weights: front and engine themselves take {taken}"
            yield Obstacle.of(ExitCode.WeightsTooLarge, what, "raise spec.resources.limits.memory")
        return
    context = limits.least_context(config.feature_set(), known)
    page, least = page_bytes(config, model), pages_of(config, context)
    given, weights, free = config.kv_cache_bytes, weights_bytes(config, model), node.free_bytes
    if given is not None and given // page < least:
        yield kv_cache_too_small(config, context, given, page)
    if free is None:
        return
    # What is in buffers goes before the KV cache comes.
    staged = stream_bytes(config, model) if config.features.device is Device.Cpu else 0
    if weights + staged > free:
        each = f" for each of {ranks} ranks" if (ranks := config.features.ranks) > 1 else ""
        taken = f"the weights of {config.model.name} take {size(weights)} in {config.dtype}{each}"
        taken += f", and {size(staged)} more while they are streamed" if staged else ""
        what = f"{taken}, and {size(free)} are free"
        step = _room_for_weights(config, model, given or least * page, free)
        yield Obstacle.of(ExitCode.WeightsTooLarge, what, step)
        return
    activations, pool = activation_bytes(config, model), host_tier_bytes(config)
    free -= pool + kept_states_bytes(config, known)
    if given is None:
        room = int((free - weights) * (1 - MARGIN)) - activations
        without = int((free + pool - weights) * (1 - MARGIN)) - activations
        if room // page < least <= without // page and config.features.device is Device.Cpu:
            yield _pool_too_large(config, node, context, least * page, room)
        elif room // page < least:
            yield kv_cache_too_small(config, context, room, page)
    elif given > free - weights - activations:
        what = f"{size(free)} are free, the weights take {size(weights)} and a prefill pass {size(activations)}"
        yield kv_cache_too_large(given, what)


def _host_cache(config: EngineConfig, node: NodeFacts) -> Iterator[Obstacle]:
    """A pool of host memory against the prefix cache that it belongs to and the memory that the container may have."""
    pool = config.features.host_cache_bytes
    if pool is None:
        return
    asked, limit = f"spec.engine.hostCache.size {as_quantity(pool)}", node.container_bytes
    ranks = config.features.ranks_of_node
    taken, whose = processes_bytes(ranks), "front and engine" if ranks == 1 else f"front and {ranks} ranks"
    if config.prefix_cache is PrefixCache.Off:
        what = f"{asked} holds prefixes, and spec.engine.prefixCache is Off"
        step = "set spec.engine.prefixCache: Auto, or remove spec.engine.hostCache"
        yield Obstacle.of(ExitCode.HostCacheInvalid, what, step)
    if limit is not None and pool + taken > limit:
        what = (
            f"{asked} does not fit into the pod's memory limit of {as_quantity(limit)}, of which {whose} "
            f"themselves take {size(taken)}"
        )
        least = as_quantity(_whole_mebibytes(pool + taken))
        step = f"lower it, or raise spec.resources.limits.memory to more than {least}"
        yield Obstacle.of(ExitCode.HostCacheInvalid, what, step)


def _pool_too_large(config: EngineConfig, node: NodeFacts, context: int, needed: int, room: int) -> Obstacle:
    """On a CPU the pool is in the memory of weights and KV cache, which has `room` bytes for one sequence of `context`
    tokens and, without the pool, the `needed` ones.
    """
    ranks, pool = config.features.ranks_of_node, config.features.host_cache_bytes or 0
    missing = _whole_mebibytes(ranks * int((needed - room) / (1 - MARGIN)))
    whose = "each rank has" if ranks > 1 else "there are"
    what = (
        f"spec.engine.hostCache.size {as_quantity(pool)} does not fit: {whose} {size(node.free_bytes or 0)} free for "
        f"it, weights and a KV cache of at least {size(needed)} (a sequence of {context} tokens)"
    )
    most = (pool - missing) // MIB * MIB
    lower = f"lower it to at most {as_quantity(most)}" if most > 0 else "remove it"
    step = f"{lower}, or raise spec.resources.limits.memory by at least {as_quantity(missing)}"
    return Obstacle.of(ExitCode.HostCacheInvalid, what, step)


def _room_for_weights(config: EngineConfig, model: ModelFacts, cache: int, free: int) -> str:
    """The next step where the weights do not fit into `free` bytes with `cache` bytes of KV cache, by estimate: more
    GPUs, or on a CPU a pod's memory.
    """
    if config.features.device is not Device.Cpu:
        room = int(free * (1 - MARGIN)) - cache
        ranks = more_ranks(
            config, model, lambda divided: weights_bytes(divided, model) + activation_bytes(divided, model) <= room
        )
        if ranks is None:
            return "use a larger GPU or a smaller model"
        gpus = ranks * config.features.pipeline
        return f"use a larger GPU, a smaller model, or {gpus} GPUs with spec.parallelism.tensor: {ranks}"
    ranks, rest = config.features.ranks_of_node, int((cache + activation_bytes(config, model)) / (1 - MARGIN))
    rest = max(rest + host_tier_bytes(config), stream_bytes(config, model))
    amount = as_quantity(_whole_mebibytes(processes_bytes(ranks) + ranks * (weights_bytes(config, model) + rest)))
    return f"raise spec.resources.limits.memory to at least {amount}"


def _room_for_cache(config: EngineConfig, room: int, needed: int, page: int) -> str:
    """The next step where `room` bytes for the KV cache are fewer than `needed`, in pages of `page` bytes."""
    if config.kv_cache_bytes is not None:
        return f"raise spec.engine.kvCacheMemory to at least {as_quantity(_whole_mebibytes(needed))}"
    if config.features.device is Device.Cpu:
        missing = _whole_mebibytes(config.features.ranks_of_node * int((needed - room) / (1 - MARGIN)))
        return f"raise spec.resources.limits.memory by at least {as_quantity(missing)}"
    if not (fits := _tokens(config, room, page)):
        # with no room at all neither a shorter context nor smaller elements help
        return "use a larger GPU or a smaller model"
    # `fits` counts no graphs: it is too much to set, so Auto, which counts them, comes first where it can start
    auto = fits >= limits.SMALL_CONTEXT
    shorter = "leave spec.engine.maxModelLen out (Auto)" if auto else f"set spec.engine.maxModelLen below {fits}"
    fp8 = config.features.kv_cache_dtype is KvCacheDtype.Fp8
    smaller = "" if fp8 else " or set spec.engine.kvCacheDtype: Fp8,"
    return f"{shorter},{smaller} or use a larger GPU"


def _whole_mebibytes(amount: int) -> int:
    return -(-amount // MIB) * MIB


def policy_refused(refused: Decision) -> Obstacle:
    """A policy that was requested explicitly, and `graph.onUnsupported` is Fail."""
    what = f"spec.graph.{refused.phase}: rule {refused.rule} excludes {refused.policy}: {refused.because}"
    return Obstacle.of(ExitCode.PolicyRefused, what)


def kv_cache_too_small(config: EngineConfig, context: int, room: int, page: int) -> Obstacle:
    """`room` bytes do not hold one sequence of `context` tokens, in pages of `page` bytes."""
    needed = pages_of(config, context) * page
    what = (
        f"the KV cache has room for {_tokens(config, room, page)} tokens ({size(max(0, room))}), and one sequence of "
        f"spec.engine.maxModelLen {context} needs {size(needed)}"
    )
    return Obstacle.of(ExitCode.KvCacheTooSmall, what, _room_for_cache(config, room, needed, page))


def _tokens(config: EngineConfig, room: int, page: int) -> int:
    """Tokens that `room` bytes hold, in whole pages of `page` bytes."""
    return max(0, room // page) * config.page_size


def kv_cache_too_large(given: int | None, why: str) -> Obstacle:
    """kvCacheMemory, `given`, does not fit."""
    asked = f" (spec.engine.kvCacheMemory: {as_quantity(given)})" if given is not None else ""
    return Obstacle.of(ExitCode.KvCacheTooLarge, f"the KV cache{asked} does not fit next to weights and graphs: {why}")

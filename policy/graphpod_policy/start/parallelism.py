"""What stands against a start of several ranks: GPUs, a model that does not divide, and what ranks do not have yet."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from graphpod_policy.config import EngineConfig, FeatureConfig
from graphpod_policy.enums import Device, ModelPath
from graphpod_policy.exit_codes import ExitCode
from graphpod_policy.facts import ModelFacts
from graphpod_policy.model.fp8_scheme import BLOCK, PARTS
from graphpod_policy.node import NodeFacts, processes_bytes
from graphpod_policy.start.footprint import stream_bytes
from graphpod_policy.start.obstacle import Obstacle
from graphpod_policy.units import as_quantity, size

MOST_RANKS = 64
"""Processes of one pod: more than a machine has GPUs."""

EXPERTS = "set spec.parallelism.expert to a number that divides both tensor and the model's experts"
"""The next step where it divides one of them only, or none."""


def gpus_missing(config: EngineConfig, node: NodeFacts) -> Iterator[Obstacle]:
    """That a place has fewer GPUs than a pod requests."""
    wanted = max(1, config.features.gpus)
    if config.features.device is Device.Cuda and node.gpus is not None and node.gpus < wanted:
        needed = "1 GPU is needed" if wanted == 1 else f"{wanted} GPUs are needed"
        there = "1 is available" if node.gpus == 1 else f"{node.gpus} are available"
        larger = (
            f"use a node with {wanted} GPUs, lower spec.parallelism and nvidia.com/gpu together, or spread the ranks "
            "over spec.parallelism.nodes"
        )
        yield Obstacle.of(ExitCode.GpuMissing, f"{needed}, and {there}", larger if node.gpus else "")


def indivisible(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """Ranks that do not match the nodes or the GPUs, or do not divide the model: both numbers, and those that would."""
    spread = config.features
    known = () if model is None else _parts(spread, model)
    for what, step in (*_ranks_and_gpus(spread, mixture=model is None or model.experts > 0), *known):
        yield Obstacle.of(ExitCode.ParallelismInvalid, f"spec.parallelism: {what}", step)


def _ranks_and_gpus(spread: FeatureConfig, *, mixture: bool) -> Iterator[tuple[str, str]]:
    """What is wrong of the numbers alone, with the next step. Too many GPUs are a feature that is not built. `mixture`:
    the model may have experts."""
    ranks, gpus = spread.tensor * spread.pipeline, max(1, spread.gpus * spread.nodes)
    if ranks > MOST_RANKS * spread.nodes:
        made = f"tensor {spread.tensor} and pipeline {spread.pipeline} make {ranks} ranks"
        yield f"{made}, and a pod has at most {MOST_RANKS}", ""
    if ranks % spread.nodes:
        fitting = _one_of(count for count in range(1, ranks + 1) if ranks % count == 0)
        yield (
            f"nodes {spread.nodes} do not divide {ranks} {'rank' if ranks == 1 else 'ranks'}, and each machine has as "
            "many",
            f"set spec.parallelism.nodes to {fitting}, or make tensor times pipeline a multiple of {spread.nodes}",
        )
    elif gpus < ranks and spread.device is Device.Cuda:
        yield (
            f"tensor {spread.tensor} and pipeline {spread.pipeline} make {ranks} ranks for {gpus} "
            f"{'GPU' if gpus == 1 else 'GPUs'}",
            f"set spec.resources.limits[nvidia.com/gpu]: {ranks // spread.nodes}, a GPU for each rank",
        )
    if mixture and spread.expert < spread.tensor and spread.tensor % spread.expert:
        yield f"expert {spread.expert} does not divide tensor {spread.tensor}", EXPERTS


def _parts(spread: FeatureConfig, model: ModelFacts) -> Iterator[tuple[str, str]]:
    """What of `model` the ranks do not divide, with the next step."""
    tensor, expert = spread.tensor, spread.expert
    if misfits := [*_misfits(model, tensor, expert)]:
        fitting = divisors(model, expert)
        step = f"set spec.parallelism.tensor to {_one_of(fitting)}, which this model divides by" if fitting else ""
        yield ", ".join(misfits), step
    if model.experts % expert:
        yield f"expert {expert} does not divide {model.experts} experts", EXPERTS
    if model.layers < spread.pipeline:
        yield (
            f"pipeline {spread.pipeline} has more stages than the model has layers ({model.layers})",
            f"lower spec.parallelism.pipeline to at most {model.layers}",
        )
    if 1 < expert <= tensor and not model.experts:
        yield f"expert {expert}, and the model has no experts", "remove spec.parallelism.expert"


def divisors(model: ModelFacts, expert: int) -> list[int]:
    """Each number of ranks of a layer, in `expert` groups, that `model` divides by."""
    counts = range(expert, MOST_RANKS + 1, expert)
    return [count for count in counts if not any(_misfits(model, count, expert))]


def more_ranks(config: EngineConfig, model: ModelFacts, fits: Callable[[EngineConfig], bool]) -> int | None:
    """The least `tensor` above that of `config` with which `fits`; None: there is none, or another feature forbids
    it."""
    spread = config.features
    for count in divisors(model, spread.expert):
        divided = replace(config, features=replace(spread, tensor=count))
        if count > spread.tensor and fits(divided) and not any(not_by_ranks(divided, model)):
            return count
    return None


def _misfits(model: ModelFacts, tensor: int, expert: int) -> Iterator[str]:
    """What `tensor` ranks of a layer do not divide, in `expert` groups. Scales and heads count if all else fits."""
    whole = True
    for count, name, parts, ranks in (
        (model.heads, "attention heads", "tensor", tensor),
        (model.intermediate if model.dense_layers else 0, "columns of an MLP", "tensor", tensor),
        (model.expert_intermediate or 0, "columns of an expert", *_slices(tensor, expert)),
        (model.shared_intermediate, "columns of the expert of every token", "tensor", tensor),
        (model.vocab, "tokens of the vocabulary", "tensor", tensor),
    ):
        if count % ranks:
            whole = False
            yield f"{parts} {ranks} does not divide {count} {name}"
    if model.kv_heads % tensor and tensor % model.kv_heads:
        whole = False
        yield f"tensor {tensor} and {model.kv_heads} key-value heads: neither divides the other"
    if whole:
        yield from _parts_of_blocks(model, tensor)
        yield from _parts_of_head(model.draft, tensor)


def _one_of(counts: Iterable[int]) -> str:
    """1, 2 or 4."""
    *most, last = map(str, counts)
    return f"{', '.join(most)} or {last}" if most else last


def _slices(tensor: int, expert: int) -> tuple[str, int]:
    """Ranks that share the columns of an expert, and what they come from; 1 where that is not built, or not whole."""
    if expert == 1:
        return "tensor", tensor
    return f"tensor {tensor} / expert {expert}, which is", 1 if tensor % expert else tensor // expert


def _parts_of_blocks(model: ModelFacts, tensor: int) -> Iterator[str]:
    """Matrices whose parts of `tensor` ranks would begin within a block that has one scale."""
    heads, parts = model.heads * model.head_dim // tensor, min(tensor, model.kv_heads)
    sizes = (heads, *[model.kv_heads // parts * model.head_dim] * 2, heads, *[model.intermediate // tensor] * 3)
    names = [part for parts in PARTS for part in parts]
    for name, part in zip(names, sizes, strict=True):
        if tensor > 1 and name in model.fp8_blocks and part % BLOCK:
            yield (
                f"tensor {tensor} divides {name} into parts of {part}, and its FP8 scales are of {BLOCK}: a part "
                "begins within a block"
            )


def _parts_of_head(head: ModelFacts | None, tensor: int) -> Iterator[str]:
    """What `tensor` ranks do not divide of a head that drafts. A draft model each has whole."""
    if head is None or head.head is None:
        return
    for count, name in (
        (head.heads, "attention heads"),
        (head.intermediate, "columns of an MLP"),
        (head.draft_vocab, "tokens of the vocabulary"),
    ):
        if count % tensor:
            yield f"tensor {tensor} does not divide {count} {name} of the draft head"
    if head.kv_heads % tensor and tensor % head.kv_heads:
        yield f"tensor {tensor} and {head.kv_heads} key-value heads of the draft head: neither divides the other"


def not_by_ranks(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """What several ranks do not have yet."""
    features = config.features
    if features.ranks == features.expert == 1:
        return
    each = ("tensor", features.tensor), ("pipeline", features.pipeline)
    spread = {f"spec.parallelism.{name}": count for name, count in each if count > 1}
    for asked, field, what, instead in (
        (
            features.speculative is not None and features.pipeline > 1,
            "spec.engine.speculative",
            f"speculative decoding by {features.speculative}",
            "use spec.parallelism.tensor alone, or remove spec.engine.speculative",
        ),
        (features.sleep, "spec.engine.sleep", "sleep", "remove it"),
        (features.reload, "spec.engine.reload", "new weights in place", "remove it"),
        (
            model is not None and model.path is ModelPath.Transformers,
            "spec.model",
            "a model that transformers computes",
            "serve one of our own families",
        ),
    ):
        if asked:
            several = " and ".join(f"{name} {count}" for name, count in spread.items())
            alone = " and ".join(f"{name}: 1" for name in spread)
            yield Obstacle.of(
                ExitCode.FeatureNotBuilt,
                f"{field}: {what} with {several} is not built in this version",
                f"{instead}, or set {alone}",
            )
    if features.expert > features.tensor:
        wider = f", or spec.parallelism.tensor: {features.expert} with a GPU for each rank"
        yield Obstacle.of(
            ExitCode.FeatureNotBuilt,
            f"spec.parallelism.expert: {features.expert} with spec.parallelism.tensor {features.tensor} is not built "
            "in this version: experts are spread over the ranks that share each layer",
            f"set spec.parallelism.expert: {features.tensor}{wider if features.expert <= MOST_RANKS else ''}",
        )


def processes_too_large(config: EngineConfig, model: ModelFacts | None, node: NodeFacts) -> Iterator[Obstacle]:
    """Ranks on GPUs against the memory that the container may have: their processes are in it, and weights only on
    their way."""
    limit, ranks = node.container_bytes, config.features.ranks_of_node
    staged = ranks * stream_bytes(config, model)
    if config.features.device is not Device.Cuda or (ranks == 1 and not staged) or limit is None:
        return
    if limit < (taken := processes_bytes(ranks) + staged):
        whose = "front and engine" if ranks == 1 else f"front and {ranks} ranks"
        with_buffers = f" with {size(staged)} of streamed weights on their way" if staged else ""
        what = (
            f"the pod's memory limit of {as_quantity(limit)} leaves nothing for weights: {whose} "
            f"themselves take at least {as_quantity(taken)}{with_buffers} (assumed)"
        )
        yield Obstacle.of(ExitCode.WeightsTooLarge, what, "raise spec.resources.limits.memory")

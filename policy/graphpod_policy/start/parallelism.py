"""What stands against a start of several ranks: GPUs, a model that does not divide, and what ranks do not have yet."""

from collections.abc import Iterator

from graphpod_policy.config import EngineConfig
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


def gpus_missing(config: EngineConfig, node: NodeFacts) -> Iterator[Obstacle]:
    """That a place has fewer GPUs than a pod requests."""
    wanted = max(1, config.features.gpus)
    if config.features.device is Device.Cuda and node.gpus is not None and node.gpus < wanted:
        needed = "1 GPU is needed" if wanted == 1 else f"{wanted} GPUs are needed"
        yield Obstacle.of(ExitCode.GpuMissing, f"{needed}, and {node.gpus} are available")


def indivisible(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """Ranks that do not match the GPUs, or do not divide the model: both numbers."""
    spread = config.features
    ranks, gpus = spread.tensor * spread.pipeline, max(1, spread.gpus * spread.nodes)
    problems = []
    if ranks > MOST_RANKS * spread.nodes:
        problems.append(
            f"tensor {spread.tensor} and pipeline {spread.pipeline} make {ranks} ranks, and a pod has at most "
            f"{MOST_RANKS}"
        )
    if ranks % spread.nodes:
        problems.append(f"nodes {spread.nodes} do not divide {ranks} ranks, and each machine has as many")
    if gpus % ranks and spread.device is Device.Cuda:
        yield Obstacle.of(
            ExitCode.ParallelismInvalid,
            f"spec.parallelism: tensor {spread.tensor} and pipeline {spread.pipeline} make {ranks} ranks for {gpus} "
            "GPUs",
            f"set spec.resources.limits[nvidia.com/gpu]: {-(-ranks // spread.nodes)}, a GPU for each rank",
        )
    if spread.expert < spread.tensor and spread.tensor % spread.expert:
        yield Obstacle.of(
            ExitCode.ParallelismInvalid,
            f"spec.parallelism: expert {spread.expert} does not divide tensor {spread.tensor}",
            "set spec.parallelism.expert to a number that divides both tensor and the model's experts",
        )
    if model is not None:
        for count, name, parts, size in (
            (model.heads, "attention heads", "tensor", spread.tensor),
            (model.intermediate if model.dense_layers else 0, "columns of an MLP", "tensor", spread.tensor),
            (model.expert_intermediate or 0, "columns of an expert", *_slices(spread.tensor, spread.expert)),
            (model.shared_intermediate, "columns of the expert of every token", "tensor", spread.tensor),
            (model.vocab, "tokens of the vocabulary", "tensor", spread.tensor),
            (model.experts, "experts", "expert", spread.expert),
        ):
            if count % size:
                problems.append(f"{parts} {size} does not divide {count} {name}")
        if model.kv_heads % spread.tensor and spread.tensor % model.kv_heads:
            problems.append(f"tensor {spread.tensor} and {model.kv_heads} key-value heads: neither divides the other")
        if model.layers < spread.pipeline:
            problems.append(f"pipeline {spread.pipeline} has more stages than the model has layers ({model.layers})")
        if 1 < spread.expert <= spread.tensor and not model.experts:
            yield Obstacle.of(
                ExitCode.ParallelismInvalid,
                f"spec.parallelism: expert {spread.expert}, and the model has no experts",
                "remove spec.parallelism.expert",
            )
        if not problems:
            problems += [*_parts_of_blocks(model, spread.tensor), *_parts_of_head(model.draft, spread.tensor)]
    for problem in problems:
        yield Obstacle.of(ExitCode.ParallelismInvalid, f"spec.parallelism: {problem}")


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
        yield Obstacle.of(
            ExitCode.FeatureNotBuilt,
            f"spec.parallelism.expert: {features.expert} with spec.parallelism.tensor {features.tensor} is not built "
            "in this version: experts are spread over the ranks that share each layer",
            f"set spec.parallelism.expert: {features.tensor}, or spec.parallelism.tensor: {features.expert} with a "
            "GPU for each rank",
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

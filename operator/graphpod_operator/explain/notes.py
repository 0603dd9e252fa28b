"""What an explanation says besides the plan: downloads, streams, drafts, ranks, and what its numbers rest on. Pure."""

from __future__ import annotations

from enum import StrEnum

from graphpod_operator.api.spec import Spec
from graphpod_operator.explain.manifest import Manifest
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_policy import (
    Device,
    EngineConfig,
    Facts,
    ModelFacts,
    ModelPath,
    NodeFacts,
    Plan,
    SpeculativeMethod,
    settled,
)
from graphpod_policy.model.families import transformers_version
from graphpod_policy.start.footprint import page_bytes, read_bytes, stream_bytes, weights_bytes
from graphpod_policy.units import size


class Unchecked(StrEnum):
    """What a verdict does not rest on, because it was not given."""

    Model = "model"
    """Architecture, context length, and memory for the weights."""
    Node = "GPU"
    """Attention kernels and memory. Of a service on a CPU, the spec's limits are the node."""


def notes_of(
    manifest: Manifest, config: EngineConfig, model: ModelFacts | None, there: EngineConfig, unusual: str
) -> tuple[str, ...]:
    """The notes on a service with this configuration; `there` is the configuration as it is settled on the node, and
    `unusual` why its element type is not the usual one.
    """
    return (
        *_downloads(manifest),
        *_streams(manifest.spec, there, model),
        *((unusual,) if unusual else ()),
        *_path(model),
        *_draft(config, model),
        *_ranks(config),
        *_groups(config),
    )


def _downloads(manifest: Manifest) -> tuple[str, ...]:
    """Where weights that are not on a claim yet go to."""
    found = downloads(manifest.name, manifest.spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    return tuple(
        f"weights: Job {one.job} downloads {one.uri.text} to folder {one.folder} of claim {one.claim}, once for all "
        "services that name the same; pods are created when it is complete (docs/how-to/download.md)"
        for one in found
    )


def _streams(spec: Spec, config: EngineConfig, model: ModelFacts | None) -> tuple[str, ...]:
    """What it costs that weights are on no disk."""
    if not spec.model.stream:
        return ()
    most = spec.replicas if spec.autoscaling is None else spec.autoscaling.max
    each = "all its weights (with --model-config: how many bytes)"
    if model is not None and model.not_built is None:
        bytes_each = read_bytes(config, model)
        each = f"about {size(bytes_each)}" + (f" ({size(most * bytes_each)} for {most} pods)" if most > 1 else "")
    ranks = config.features.ranks_of_node
    staged = size(ranks * stream_bytes(config, model)) + " of the pod's memory"
    staged += f", for {ranks} ranks" if ranks > 1 else ""
    return (
        f"weights: each pod reads {each} of {spec.model.uri} at each start, straight into the device. Every replica, "
        "restart and rollout reads them again; with spec.model.cache they are downloaded once (docs/how-to/stream.md). "
        f"Meanwhile buffers take up to {staged}",
    )


def _path(model: ModelFacts | None) -> tuple[str, ...]:
    """Whose modules compute the model, where they are not the engine's own."""
    if model is None or model.path is ModelPath.Native or model.not_built is not None:
        return ()
    version = transformers_version()
    return (
        f"model path: {model.path}. {model.architecture} of transformers {version} computes the model, on graphpod's "
        "weights, attention, KV cache and graphs (docs/how-to/any-model.md)",
    )


def _draft(config: EngineConfig, model: ModelFacts | None) -> tuple[str, ...]:
    """What the draft model takes, where its shape is known; that it is not where there is one."""
    own_layers = config.features.speculative is SpeculativeMethod.Mtp
    if config.features.speculative_draft is None and not own_layers:
        return ()
    if model is None or model.draft is None:
        if own_layers:
            return ("memory of the model's own layers that draft is not counted. With --model-config it is",)
        return ("memory of the draft model is not counted. With --model-config and --draft-config it is",)
    settled_config, _ = settled(config, model, NodeFacts())
    if settled_config.dtype is None:
        return ()
    weights = size(weights_bytes(settled_config, model.draft))
    share = page_bytes(settled_config, model.draft) / page_bytes(settled_config, model)
    what = "model" if model.draft.head is None else "head"
    return (f"the draft {what} takes {weights} for its weights, and {share:.0%} of the KV cache",)


def _ranks(config: EngineConfig) -> tuple[str, ...]:
    """That ranks on a CPU are there to try them."""
    if config.features.ranks == 1 or config.features.device is Device.Cuda:
        return ()
    each = "each of " if config.features.nodes > 1 else ""
    return (
        f"spec.parallelism: {config.features.ranks} ranks without nvidia.com/gpu in spec.resources.limits: they are "
        f"processes of {each}{config.features.nodes} container{'s' if each else ''}, which share its processors and "
        "memory. It makes nothing faster",
    )


def _groups(config: EngineConfig) -> tuple[str, ...]:
    """What several nodes need of the cluster, which nothing here has asked."""
    if (nodes := config.features.nodes) == 1:
        return ()
    return (
        f"spec.parallelism.nodes: {nodes} pods are one replica, each with {config.features.ranks_of_node} of the "
        f"{config.features.ranks} ranks; spec.resources are for each pod. The cluster needs the kind LeaderWorkerSet "
        "(docs/how-to/several-nodes.md)",
    )


def unchecked(plan: Plan, facts: Facts) -> tuple[Unchecked, ...]:
    """What is not known of model and node."""
    gpu = plan.features.device is Device.Cuda and facts.gpu_memory_bytes is None
    return (*((Unchecked.Model,) if facts.model is None else ()), *((Unchecked.Node,) if gpu else ()))


def assumptions(plan: Plan, facts: Facts) -> tuple[str, ...]:
    """What the numbers rest on."""
    weights = "8 billion" if plan.features.device is Device.Cuda else "135 million"
    said = {
        Unchecked.Model: f"bytes and seconds are those of a model of {weights} weights. With --model-config FILE they "
        "are those of your model, its architecture, context length and memory are checked, and the tokens of the KV "
        "cache are estimated",
        Unchecked.Node: "default ladders are those of the largest GPUs. With "
        f"--node gpu=H200,count={max(1, plan.features.gpus)} they are those of your GPU, and its attention kernels "
        "and memory are checked",
    }
    return tuple(said[one] for one in unchecked(plan, facts))

"""What an engine sees of its place and its model before the weights are there."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graphpod_policy import (
    Device,
    EngineConfig,
    FeatureConfig,
    Kernels,
    ModelFacts,
    ModelUnreadable,
    NodeFacts,
    SpeculativeMethod,
    settled,
)
from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_runtime.attention.choice import kernels_for
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.processors import whole_processors
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.cache.kv import cache_dtype
from graphpod_runtime.engine.start import memory
from graphpod_runtime.models.config_json import read_config


def model_of(folder: Path, features: FeatureConfig | None = None) -> ModelFacts | None:
    """The model in `folder` as its config.json describes it, with what drafts for it by `features`; None where that
    cannot be read, which loading reports."""
    try:
        config: Mapping[str, Any] = read_config(folder)
        model = ModelFacts.of(config).served
    except (ModelInvalid, ModelUnreadable):
        return None
    if features is None:
        return model
    if features.speculative is SpeculativeMethod.Mtp:
        return replace(model, draft=_draft(features, folder))
    if features.speculative_draft is None:
        return model
    return replace(model, draft=_draft(features, Path(features.speculative_draft)))


def _draft(features: FeatureConfig, folder: Path) -> ModelFacts | None:
    if features.speculative not in DRAFT_HEADS:
        return model_of(folder)
    try:
        return ModelFacts.of_head(features.speculative, read_config(folder))
    except (ModelInvalid, ModelUnreadable):
        return None


def node_of(config: EngineConfig, model: ModelFacts | None, gpu: int = 0) -> NodeFacts:
    """The place that `config` names; of several GPUs that of this process."""
    if config.features.device is Device.Cpu:
        free = memory.available_bytes() // config.features.ranks_of_node
        return NodeFacts(free_bytes=free, container_bytes=memory.limit_bytes())
    if (count := torch.cuda.device_count()) <= gpu:
        return NodeFacts(gpus=count)
    free, total = torch.cuda.mem_get_info(gpu)
    node = NodeFacts(count, torch.cuda.get_device_capability(gpu), total, free, container_bytes=memory.limit_bytes())
    return replace(node, kernels=_kernels(settled(config, model, node)[0], model))


def threads_of(config: EngineConfig) -> int | None:
    """Threads of this process; None: as many as torch takes by itself. Ranks without a number share the processors."""
    if config.threads is not None or config.features.ranks == 1:
        return config.threads
    share = whole_processors() // config.features.ranks_of_node
    return max(1, min(share, torch.get_num_threads()))


def _kernels(config: EngineConfig, model: ModelFacts | None) -> Kernels | None:
    return None if model is None else kernels_for(model.head_dim, dtype_of(config.element), cache_dtype(config))

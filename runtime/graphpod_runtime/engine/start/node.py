"""What an engine sees of its place before the weights are there."""

from dataclasses import replace

import torch

from graphpod_policy import Device, EngineConfig, Kernels, ModelFacts, NodeFacts, settled
from graphpod_runtime.attention.choice import kernels_for
from graphpod_runtime.base.process.processors import whole_processors
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.cache.kv import cache_dtype
from graphpod_runtime.engine.start import memory


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

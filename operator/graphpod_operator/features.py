"""From the spec to what the resolver sees."""

from __future__ import annotations

from graphpod_operator import quantity
from graphpod_operator.api import KvCacheDtype, Spec
from graphpod_operator.model_uri import ModelUri
from graphpod_policy import Device, Features, GraphRequest, NotBuilt, not_built

GPU = "nvidia.com/gpu"

BUILT_SCHEMES = ("pvc",)
"""Schemes of `spec.model.uri` this version can mount; the API has the others on their final names."""


def wants_gpu(spec: Spec) -> bool:
    """Whether a pod asks for at least one GPU."""
    asked = spec.resources.limits.get(GPU) or spec.resources.requests.get(GPU)
    return asked is not None and quantity.value(asked) > 0


def features(spec: Spec) -> Features:
    """The features in use."""
    engine = spec.engine
    return Features(
        device=Device.Cuda if wants_gpu(spec) else Device.Cpu,
        max_model_len=engine.max_model_len,
        max_batch=engine.max_batch,
        speculative=engine.speculative.method.value if engine.speculative else None,
        host_cache_bytes=quantity.whole(engine.host_cache.size) if engine.host_cache else None,
        cpu_offload_bytes=quantity.whole(engine.cpu_offload.size) if engine.cpu_offload else None,
        lora=tuple(adapter.name for adapter in engine.lora),
        quantization=engine.quantization.value if engine.quantization else None,
        kv_cache_dtype="auto" if engine.kv_cache_dtype is KvCacheDtype.Auto else engine.kv_cache_dtype.value.lower(),
        deterministic=engine.deterministic,
        role=spec.role,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        nodes=spec.parallelism.nodes,
    )


def graph_request(spec: Spec) -> GraphRequest:
    """What the user asks of graphs."""
    graph = spec.graph
    return GraphRequest(
        prefill=graph.prefill,
        decode=graph.decode,
        prefill_sizes=graph.sizes.prefill,
        decode_sizes=graph.sizes.decode,
        on_unsupported=graph.on_unsupported,
        on_capture_failure=graph.on_capture_failure,
    )


def missing(spec: Spec) -> tuple[NotBuilt, ...]:
    """Every field that asks for something this version does not have: the engine's, then the operator's own."""
    lacking = list(not_built(features(spec), graph_request(spec)))
    uri = ModelUri.parse(spec.model.uri)
    if uri.scheme not in BUILT_SCHEMES:
        lacking.append(
            NotBuilt("spec.model.uri", f"spec.model.uri: {uri.scheme}:// is not built in this version; use pvc://")
        )
    return tuple(lacking)

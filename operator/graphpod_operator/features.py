"""From the spec to what the resolver sees."""

from __future__ import annotations

from graphpod_operator import operator_features, quantity
from graphpod_operator.api import Spec
from graphpod_operator.model_uri import ModelUri
from graphpod_policy import (
    Device,
    Features,
    GraphRequest,
    KvCacheDtype,
    NotBuilt,
    Quantization,
    SpeculativeMethod,
    not_built,
)

GPU = "nvidia.com/gpu"

BUILT_SCHEMES = ("pvc",)
"""Schemes of `spec.model.uri` this version can mount; the API has the others on their final names."""


def gpus(spec: Spec) -> int:
    """GPUs that one pod asks for."""
    asked = spec.resources.limits.get(GPU) or spec.resources.requests.get(GPU)
    return quantity.whole(asked) if asked is not None else 0


def wants_gpu(spec: Spec) -> bool:
    """Whether a pod asks for at least one GPU."""
    return gpus(spec) > 0


def features(spec: Spec) -> Features:
    """The features in use."""
    engine, parallel = spec.engine, spec.parallelism
    unused = Features()
    return Features(
        device=Device.Cuda if wants_gpu(spec) else Device.Cpu,
        gpus=gpus(spec),
        nodes=parallel.nodes,
        max_model_len=engine.max_model_len,
        max_batch=engine.max_batch,
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        speculative=SpeculativeMethod(engine.speculative.method) if engine.speculative else None,
        speculative_steps=engine.speculative.steps if engine.speculative else unused.speculative_steps,
        speculative_topk=engine.speculative.topk if engine.speculative else unused.speculative_topk,
        host_cache_bytes=quantity.whole(engine.host_cache.size) if engine.host_cache else None,
        cpu_offload_bytes=quantity.whole(engine.cpu_offload.size) if engine.cpu_offload else None,
        lora=tuple(adapter.name for adapter in engine.lora),
        quantization=Quantization(engine.quantization) if engine.quantization else None,
        kv_cache_dtype=KvCacheDtype(engine.kv_cache_dtype),
        deterministic=engine.deterministic,
        role=spec.role,
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
    return (*lacking, *operator_features.lacking(spec))

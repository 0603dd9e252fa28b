"""From the spec to what the resolver sees."""

from __future__ import annotations

import math

from graphpod_operator.api import duration, quantity
from graphpod_operator.api.names import GPU
from graphpod_operator.api.spec import Spec
from graphpod_operator.api.weights_uri import ARCHIVE
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_policy import Device, Features, GraphRequest, NotBuilt, not_built

OTHER_ACCELERATORS = (
    "nvidia.com/mig-", "nvidia.com/gpu.", "amd.com/gpu", "gpu.intel.com/", "google.com/tpu", "habana.ai/gaudi",
    "aws.amazon.com/neuron", "huawei.com/Ascend",
)  # fmt: skip
"""Beginnings of resources that no engine uses: parts of a GPU, and chips of others."""


def gpus(spec: Spec) -> int:
    """GPUs that one pod asks for."""
    asked = spec.resources.limits.get(GPU) or spec.resources.requests.get(GPU)
    return quantity.whole(asked) if asked is not None else 0


def wants_gpu(spec: Spec) -> bool:
    """Whether a pod asks for at least one GPU."""
    return gpus(spec) > 0


def container_bytes(spec: Spec) -> int | None:
    """The memory that a pod's container may have; None without a limit."""
    limit = spec.resources.limits.get("memory")
    return quantity.whole(limit) if limit is not None else None


def features(spec: Spec) -> Features:
    """The features in use."""
    engine, parallel, unused = spec.engine, spec.parallelism, Features()
    draft, offload = engine.speculative, engine.cpu_offload
    files = engine.host_cache.file if engine.host_cache else None
    return Features(
        device=Device.Cuda if wants_gpu(spec) else Device.Cpu,
        gpus=gpus(spec),
        nodes=parallel.nodes,
        max_model_len=engine.max_model_len,
        max_batch=engine.max_batch,
        prefill_chunk=engine.prefill_chunk,
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        expert=parallel.expert,
        context=parallel.context,
        all_to_all=parallel.all_to_all,
        two_batch_overlap=parallel.two_batch_overlap,
        expert_rebalancing=parallel.expert_rebalancing,
        symmetric_memory=parallel.symmetric_memory,
        speculative=draft.method if draft else None,
        speculative_steps=draft.steps if draft else unused.speculative_steps,
        speculative_topk=draft.topk if draft else unused.speculative_topk,
        speculative_draft_tokens=draft.draft_tokens if draft else unused.speculative_draft_tokens,
        speculative_max_batch=draft.max_batch if draft else unused.speculative_max_batch,
        speculative_draft=ModelUri.parse(draft.draft_model).mounted_path if draft and draft.draft_model else None,
        host_cache_bytes=quantity.whole(engine.host_cache.size) if engine.host_cache else None,
        host_cache_folder=files.path if files else None,
        host_cache_file_bytes=quantity.whole(files.size) if files else None,
        cpu_offload_bytes=quantity.whole(offload.size) if offload else None,
        cpu_offload_staging=offload.staging if offload else False,
        lora=tuple(adapter.name for adapter in engine.lora),
        quantization=engine.quantization,
        kv_cache_dtype=engine.kv_cache_dtype,
        attention=engine.attention,
        full_compile=engine.full_compile,
        deterministic=engine.deterministic,
        sleep=engine.sleep,
        sleep_after_seconds=None if engine.sleep_after is None else math.ceil(duration.seconds(engine.sleep_after)),
        reload=engine.reload,
        role=spec.role,
    )


def graph_request(spec: Spec) -> GraphRequest:
    """What the user asks of graphs."""
    graph, budget = spec.graph, spec.graph.budget
    return GraphRequest(
        prefill=graph.prefill,
        decode=graph.decode,
        prefill_sizes=graph.sizes.prefill,
        decode_sizes=graph.sizes.decode,
        compile=graph.compile,
        budget_bytes=quantity.whole(budget.memory) if budget.memory is not None else None,
        budget_seconds=math.ceil(duration.seconds(budget.time)) if budget.time is not None else None,
        on_unsupported=graph.on_unsupported,
        on_capture_failure=graph.on_capture_failure,
    )


def missing(spec: Spec) -> tuple[NotBuilt, ...]:
    """Every field that asks for something this version does not have: the engine's, then the operator's own."""
    lacking = list(not_built(features(spec), graph_request(spec)))
    lacking += map(_other_accelerator, _other_accelerators(spec))
    if spec.model.stream and spec.parallelism.nodes > 1:
        what = f"a stream to the pods of {spec.parallelism.nodes} nodes is not built in this version"
        lacking.append(NotBuilt("spec.model.stream", f"spec.model.stream: {what}; remove it, or use one node"))
    draft = spec.engine.speculative.draft_model if spec.engine.speculative else None
    if draft is not None and (unmet := _draft_elsewhere(spec, ModelUri.parse(draft))) is not None:
        lacking.append(NotBuilt(_DRAFT, f"{_DRAFT}: {unmet}"))
    return tuple(lacking)


_DRAFT = "spec.engine.speculative.draftModel"


def _draft_elsewhere(spec: Spec, draft: ModelUri) -> str | None:
    """Why the pod cannot read a draft model from the claim that has the model; None when it can."""
    if draft.scheme == ARCHIVE:
        return "an archive, which needs a checksum, is not built in this version; use another scheme"
    model, cache = ModelUri.parse(spec.model.uri), spec.model.cache
    if draft.is_download and cache is not None:
        return None
    if draft.is_download:
        return "a download next to a model on a claim is not built in this version; copy the draft model to that claim"
    if draft.authority == (model.authority if cache is None else cache.claim):
        return None
    what = "a claim other than that of spec.model.uri is not built in this version"
    return f"{what}; copy the draft model to a folder of that claim"


def _other_accelerators(spec: Spec) -> list[str]:
    """Paths of the resources that no engine uses: one that is reserved and limited is reported as limited."""
    asked = {
        name: f"spec.resources.{kind}[{name}]"
        for kind, resources in (("requests", spec.resources.requests), ("limits", spec.resources.limits))
        for name, amount in resources.items()
        if name.startswith(OTHER_ACCELERATORS) and quantity.whole(amount)
    }
    return list(asked.values())


def _other_accelerator(field: str) -> NotBuilt:
    return NotBuilt(field, f"{field}: engines of this version run on whole NVIDIA GPUs; ask for {GPU} instead")

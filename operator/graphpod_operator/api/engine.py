"""`spec.engine`: how the engine runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import (
    ATOMIC,
    ApiModel,
    Boolean,
    Bytes,
    Duration,
    Integer,
    Keyed,
    ObjectName,
    Quantity,
    ValidationRule,
    lasting,
    sized,
)
from graphpod_operator.api.speculative import Speculative
from graphpod_policy import (
    AttentionBackend,
    KvCacheDtype,
    PrefixCache,
    Quantization,
    ReasoningParser,
    SamplingSource,
    ToolParser,
)
from graphpod_policy.limits import MOST_BATCH, MOST_CONTEXT, MOST_PAGE

_PART = r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?"
_IMAGE = (
    rf"^({_PART}|\[[0-9A-Fa-f:]+\])(:[0-9]{{1,5}})?(/{_PART})*(:[A-Za-z0-9_][-A-Za-z0-9_.]{{0,127}})?"
    r"(@[a-z0-9]+:[0-9a-f]{32,128})?$"
)
"""[registry[:port]/]path[:tag][@digest]."""


class Dtype(StrEnum):
    """Element type of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class ImagePullPolicy(StrEnum):
    """Kubernetes' own words."""

    Always = "Always"
    IfNotPresent = "IfNotPresent"
    Never = "Never"


class HostCacheFile(ApiModel):
    """Files under the tier in host memory, in a volume of the pods."""

    path: str = Field(
        max_length=512,
        pattern=r"^(/\.?[A-Za-z0-9_][-A-Za-z0-9_.]*)+$",
        description="Folder in the container. It must be the mountPath of one of spec.podTemplate.volumeMounts, or lie "
        "in it, and not be read-only. Pods may share it. Required, no default.",
    )
    size: Bytes = Field(
        description="What the files of one pod may take, in bytes (a quantity). The least recently used are deleted. "
        "Required, no default.",
    )


class HostCache(ApiModel):
    """A second tier of the KV cache in host memory."""

    size: Bytes = Field(
        description="Host memory for KV pages, in bytes (a quantity); part of the pod's memory limit, which must be "
        "larger. The ranks of a pod on several GPUs share it. Required, no default.",
    )
    file: HostCacheFile | None = Field(
        None,
        description="Files that hold pages, too, and outlive the pod if their volume does. Default: none.",
    )


class CpuOffload(ApiModel):
    """Weights kept in host memory and copied in when needed."""

    size: Bytes = Field(
        description="Weights kept in host memory, in bytes (a quantity). Required, no default.",
    )
    staging: Boolean = Field(
        False,
        description="Copy them from pinned memory to fixed addresses, so that graphs stay on. Default: false.",
    )


class LoraAdapter(ApiModel):
    """One LoRA adapter."""

    name: str = Field(
        min_length=1, max_length=128, description="Model name that selects the adapter. Required, no default."
    )
    uri: str = Field(
        min_length=7,
        max_length=512,
        description="Where the adapter is, written as spec.model.uri is. Required, no default.",
    )


class PullSecret(ApiModel):
    """A Secret with a registry's credentials."""

    name: ObjectName = Field(description="Name of the Secret. Required, no default.")


class ApiKeySecretRef(ApiModel):
    """A key that clients must send."""

    name: ObjectName = Field(description="Name of the Secret. Required, no default.")
    key: str = Field("api-key", min_length=1, max_length=253, description="Key in the Secret. Default: api-key.")


class TlsSecretRef(ApiModel):
    """The certificate of the API port."""

    name: ObjectName = Field(description="Name of the Secret, of type kubernetes.io/tls. Required, no default.")


Origin = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^(\*|https?://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\[[0-9a-f:]+\])(:[0-9]{1,5})?)$",
    ),
]
"""As browsers write one: in lower case, without a path."""


class Cors(ApiModel):
    """Web pages that may use the API from a browser."""

    allow_origins: tuple[Origin, ...] = Field(
        min_length=1,
        max_length=16,
        description='Origins of these pages, such as https://chat.example.com; "*" is any page. Required, no default.',
        json_schema_extra=ATOMIC,
    )


class Tracing(ApiModel):
    """Traces of requests, sent to an OpenTelemetry collector."""

    endpoint: str = Field(
        min_length=8,
        max_length=512,
        pattern=r"^https?://[-A-Za-z0-9._~:\[\]@%]+(/[-A-Za-z0-9._~%/]*)?$",
        description="Base URL of a collector that takes OTLP over HTTP, such as http://otel-collector.monitoring:4318; "
        "spans go to its /v1/traces. Required, no default.",
    )
    sampling_rate_per_million: Integer = Field(
        1_000_000,
        ge=0,
        le=1_000_000,
        description="Requests of a million that are traced, where the client's traceparent header does not decide. "
        "Default: 1000000 (all).",
    )


Waiting = Annotated[Duration, lasting("1s", "1h")]
"""How long a server waits for a client."""


class HttpLimits(ApiModel):
    """What one request may take of a pod."""

    body_size: Annotated[Quantity, sized("64Ki", "64Mi")] = Field(
        "4Mi",
        description="Largest body of a request (413 above it), in bytes (a quantity). A pod holds up to 16 bodies of "
        "this size (503 above it), in memory of its own. Default: 4Mi.",
    )
    header_timeout: Waiting = Field(
        "30s", description="Time for a request's header; the connection is closed then. Default: 30s."
    )
    body_timeout: Waiting = Field(
        "30s",
        description="Time between two pieces of a request's body (408 after it). The whole body gets this time, and "
        "1 s more for each 4 KiB that came. Default: 30s.",
    )
    read_timeout: Waiting = Field(
        "60s",
        description="Time in which a client must read of its stream; it is given up then. Clients of other answers "
        "have three times as long. Default: 60s.",
    )


class Engine(ApiModel):
    """How the engine runs."""

    RULES = (
        ValidationRule(
            "!has(self.sleepAfter) || (has(self.sleep) && self.sleep)",
            "engine.sleepAfter needs engine.sleep: true",
            lambda engine: engine.sleep or engine.sleep_after is None,
        ),
    )

    image: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        pattern=_IMAGE,
        description="Image of the engine. Default: the image the operator was installed with.",
    )
    image_pull_policy: ImagePullPolicy = Field(
        ImagePullPolicy.IfNotPresent, description="When the kubelet pulls the image. Default: IfNotPresent."
    )
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=8), Keyed("name")] = Field(
        (), description="Secrets of this namespace with the registry's credentials. Default: none."
    )
    api_key_secret_ref: ApiKeySecretRef | None = Field(
        None,
        description="Require this bearer token on the API port, but for /health and /ping (401 without it). The Secret "
        "is in this namespace; the pod mounts it, and the operator never reads it. A new value takes effect without a "
        "restart. The value may hold several keys, one a line. Default: every request is served.",
    )
    tls_secret_ref: TlsSecretRef | None = Field(
        None,
        description="Serve HTTPS on the API port with this Secret's tls.crt and tls.key; the Service has port 443 then "
        "instead of 80. The Secret is in this namespace; the pod mounts it, and the operator never reads it. A renewed "
        "certificate takes effect without a restart. Default: HTTP.",
    )
    cors: Cors | None = Field(
        None, description="Cross-origin requests of browsers. Default: off, browsers keep other pages out."
    )
    tracing: Tracing | None = Field(
        None,
        description="Send a span for each request, with queue, prefill and decode below it. Default: off, unless "
        "podTemplate.env sets OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    dtype: Dtype | None = Field(
        None,
        description="Element type of weights and activations. Default: float32 without GPUs; with GPUs bfloat16, or "
        "where a GPU has none (compute capability below 8.0, as a T4) float16, for Gemma-3 float32. "
        "The start fails with bfloat16 on a GPU without it.",
    )
    max_model_len: Integer | None = Field(
        None,
        ge=16,
        le=MOST_CONTEXT,
        description="Longest prompt plus answer, in tokens. Default: Auto, derived by each pod: on a GPU the model's "
        "own length as far as the KV cache holds one such context (2048 where torch decodes), on a CPU the "
        "model's own length up to 2048. status.engine.maxModelLen has the value.",
    )
    max_batch: Integer | None = Field(
        None,
        ge=1,
        le=MOST_BATCH,
        description="Most requests decoded in one pass; with parallelism.data, of each rank. Default: Auto, derived by "
        "each pod: on a GPU 256, less on one of under 60 GiB or where torch decodes; 8 on a CPU. "
        "status.engine.maxBatch has the value.",
    )
    prefill_chunk: Integer | None = Field(
        None,
        ge=16,
        le=MOST_CONTEXT,
        description="Most prompt tokens of one prefill pass; longer prompts take several. Default: the largest size "
        "of the prefill ladder.",
    )
    prefill_budget: Integer | None = Field(
        None,
        ge=16,
        le=MOST_CONTEXT,
        description="Most prompt tokens of a prefill pass between two decode passes; without a request that decodes a "
        "pass takes prefillChunk. Default: Auto, derived by each pod so that a decode waits at most twice its own "
        "time, as measured at the start.",
    )
    prefix_cache: PrefixCache = Field(
        PrefixCache.Auto,
        description="Whether requests with the same beginning share its KV. Default: Auto (on).",
    )
    http_metrics: Boolean = Field(
        True,
        description="Serve /metrics on the API port, too, where the key of apiKeySecretRef guards it. The admin port "
        "always has it. Default: true.",
    )
    tool_parser: ToolParser = Field(
        ToolParser.Auto,
        description="How the model's answers write calls of tools. None: calls stay text. Default: Auto (as its chat "
        "template shows).",
    )
    reasoning_parser: ReasoningParser = Field(
        ReasoningParser.Auto,
        description="How the model's answers write reasoning. None: reasoning stays text. Default: Auto (as its chat "
        "template shows).",
    )
    sampling_defaults: SamplingSource = Field(
        SamplingSource.Model,
        description="Where temperature, top_p, top_k, min_p and repetition_penalty come from if a request leaves them "
        "out: Model (generation_config.json of the model's folder) or OpenAI (temperature 1, nothing cut). End tokens "
        "are the model's either way. Default: Model.",
    )
    http_limits: HttpLimits | None = Field(
        None, description="Size and time of one request. Default: each field at its default."
    )
    vllm_metric_names: Boolean = Field(
        False,
        description="Export metrics by vLLM's names, too (vllm:num_requests_waiting and others), for gateways, "
        "autoscalers and benchmarks that know no other. Default: false.",
    )
    page_size: Integer = Field(
        16, ge=1, le=MOST_PAGE, description="Tokens held by one page of the KV cache. Default: 16."
    )
    kv_cache_memory: Bytes | None = Field(
        None,
        description=(
            "Memory for the KV cache of each GPU (rank), in bytes (a quantity). Default: what is left after the "
            "weights and the graphs on a GPU; room for maxBatch requests of maxModelLen tokens on a CPU."
        ),
    )
    kv_cache_dtype: KvCacheDtype = Field(
        KvCacheDtype.Auto, description="Element type of the KV cache. Default: Auto (that of the activations)."
    )
    quantization: Quantization | None = Field(
        None,
        description="What plain weights become when they are loaded: Fp8. Gguf is not built. Default: as in the "
        "checkpoint.",
    )
    attention: AttentionBackend = Field(
        AttentionBackend.Auto, description="Kernels that compute attention. Default: Auto (the device's best)."
    )
    full_compile: Boolean = Field(
        False,
        description="Compile the whole model with torch.compile. spec.graph.compile compiles halves of layers, from "
        "which graphs are captured. Default: false.",
    )
    start_timeout: Annotated[Duration, lasting("1m", "168h")] | None = Field(
        None,
        description="Longest start of a container until it is Ready (30m, 4h), in whole minutes; then the kubelet "
        "restarts it. The engine itself ends a start without progress earlier. Default: ten times the estimate, "
        "at least 1h; with several nodes 168h, as the leader waits for its workers. status.graph.budgetSeconds has it.",
    )
    deterministic: Boolean = Field(
        False, description="Same tokens for the same request whatever else runs in the batch. Default: false."
    )
    sleep: Boolean = Field(
        False,
        description="Weights and KV cache can leave the device, and come back to the same addresses: by sleepAfter, or "
        "while the annotation graphpod.dev/sleep is true. Default: false.",
    )
    sleep_after: Annotated[Duration, lasting("1s", "168h")] | None = Field(
        None,
        description="Time without requests (90s, 10m) after which a pod's weights and KV cache leave the device, in "
        "whole seconds. The pod stays Ready; its next request waits until they are back. Needs sleep: true. Default: "
        "never.",
    )
    reload: Boolean = Field(
        False,
        description="New weights in the folder of spec.model.uri (pvc://) may take the place of the old ones without a "
        "restart, by the annotation graphpod.dev/reload. Default: false.",
    )
    speculative: Speculative | None = Field(None, description="Speculative decoding. Default: off.")
    host_cache: HostCache | None = Field(
        None,
        description="KV cache tier in host memory: prefixes that leave the KV cache stay there, and are loaded where "
        "that takes less time than computing them. Needs prefixCache Auto. Default: off.",
    )
    cpu_offload: CpuOffload | None = Field(None, description="Weights kept in host memory. Default: off.")
    lora: Annotated[tuple[LoraAdapter, ...], Field(max_length=32), Keyed("name")] = Field(
        (), description="LoRA adapters served with the model. Default: none."
    )

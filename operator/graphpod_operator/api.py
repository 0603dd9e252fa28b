"""InferenceService as frozen values: the one source of the CRD, of its manual and of what the operator reads.

Field names are camelCase on the wire. Each description is what `kubectl explain` prints, so it states the unit
and the default. Unconditional defaults are schema defaults; a default that depends on other fields is told in
the description and its value appears in status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from graphpod_operator.api_model import (
    ATOMIC,
    KEY_LENGTH,
    ApiModel,
    Boolean,
    Integer,
    Keyed,
    Label,
    LabelValue,
    PositiveQuantity,
    Quantity,
    Rule,
    Ruled,
    matches,
)
from graphpod_operator.api_pod import PodTemplate
from graphpod_policy import OnCaptureFailure, OnUnsupported, Policy, Role

GROUP = "graphpod.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceService"
PLURAL = "inferenceservices"
SHORT_NAME = "gisvc"

NAME_MAX = 40
MAX_SIZES = 128


_URI = "^(pvc|hf|s3|oci)://.+"
_PVC_URI = "^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_][-A-Za-z0-9._]*)*$"
_is_pvc_uri = matches(_PVC_URI)


class Model(ApiModel):
    """Which weights to serve."""

    uri: Annotated[
        str,
        Ruled(
            Rule(
                f"self.matches('{_URI}')",
                "spec.model.uri must begin with one of pvc://, hf://, s3://, oci://",
                matches(_URI),
            ),
            Rule(
                f"!self.startsWith('pvc://') || self.matches('{_PVC_URI}')",
                "spec.model.uri with pvc:// must read pvc://CLAIM/FOLDER: a claim name, then folders of letters, "
                "digits, '.', '_' and '-' that do not begin with '.' or '-'",
                lambda uri: not uri.startswith("pvc://") or _is_pvc_uri(uri),
            ),
        ),
    ] = Field(
        min_length=7,
        max_length=512,
        description=(
            "Where the weights are: pvc://CLAIM/FOLDER (a folder in a PersistentVolumeClaim of this namespace), "
            "hf://ORG/NAME@REVISION, s3://BUCKET/PREFIX or oci://REFERENCE. Only pvc:// is built in this version. "
            "Required, no default."
        ),
    )
    name: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$",
        description="Model name clients put in their requests. Default: the name of the InferenceService.",
    )


class Dtype(StrEnum):
    """Element type of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class ImagePullPolicy(StrEnum):
    """Kubernetes' own words."""

    Always = "Always"
    IfNotPresent = "IfNotPresent"
    Never = "Never"


class SpeculativeMethod(StrEnum):
    """How draft tokens are proposed."""

    Ngram = "Ngram"
    DraftModel = "DraftModel"
    Eagle = "Eagle"
    Eagle3 = "Eagle3"


class Speculative(ApiModel):
    """Speculative decoding."""

    method: SpeculativeMethod = Field(description="How draft tokens are proposed. Required, no default.")
    draft_model: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="Weights of the draft model, written as spec.model.uri is. Default: none (Ngram needs none).",
    )
    steps: Integer = Field(3, ge=1, le=16, description="Draft tokens proposed per pass, in tokens. Default: 3.")
    topk: Integer = Field(1, ge=1, le=16, description="Branches kept at each draft step. Default: 1 (a chain).")


class HostCache(ApiModel):
    """A second tier of the KV cache in host memory."""

    size: PositiveQuantity = Field(
        description="Host memory for KV pages, in bytes (a quantity). Required, no default.",
    )


class CpuOffload(ApiModel):
    """Weights kept in host memory and copied in when needed."""

    size: PositiveQuantity = Field(
        description="Weights kept in host memory, in bytes (a quantity). Required, no default.",
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


class Quantization(StrEnum):
    """Weight format."""

    Fp8 = "Fp8"


class KvCacheDtype(StrEnum):
    """Element type of the KV cache."""

    Auto = "Auto"
    Fp8 = "Fp8"


class Engine(ApiModel):
    """How the engine runs."""

    image: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        pattern=r"^\S+$",
        description="Image of the engine. Default: the image the operator was installed with.",
    )
    image_pull_policy: ImagePullPolicy = Field(
        ImagePullPolicy.IfNotPresent, description="When the kubelet pulls the image. Default: IfNotPresent."
    )
    dtype: Dtype | None = Field(
        None,
        description="Element type of weights and activations. Default: bfloat16 with GPUs, float32 without.",
    )
    max_model_len: Integer = Field(
        2048, ge=16, le=1_048_576, description="Longest prompt plus answer, in tokens. Default: 2048."
    )
    max_batch: Integer = Field(8, ge=1, le=1024, description="Most requests decoded in one pass. Default: 8.")
    page_size: Integer = Field(16, ge=1, le=256, description="Tokens held by one page of the KV cache. Default: 16.")
    kv_cache_memory: PositiveQuantity | None = Field(
        None,
        description=(
            "Memory for the KV cache, in bytes (a quantity). Default: what is left after the weights and the "
            "graphs on a GPU; room for maxBatch requests of maxModelLen tokens on a CPU."
        ),
    )
    kv_cache_dtype: KvCacheDtype = Field(
        KvCacheDtype.Auto, description="Element type of the KV cache. Default: Auto (that of the activations)."
    )
    quantization: Quantization | None = Field(None, description="Format of the weights. Default: not quantized.")
    deterministic: Boolean = Field(
        False, description="Same tokens for the same request whatever else runs in the batch. Default: false."
    )
    speculative: Speculative | None = Field(None, description="Speculative decoding. Default: off.")
    host_cache: HostCache | None = Field(None, description="KV cache tier in host memory. Default: off.")
    cpu_offload: CpuOffload | None = Field(None, description="Weights kept in host memory. Default: off.")
    lora: Annotated[tuple[LoraAdapter, ...], Field(max_length=32), Keyed("name")] = Field(
        (),
        description="LoRA adapters served beside the model. Default: none.",
    )


class Parallelism(ApiModel):
    """How one replica is spread over devices."""

    tensor: Integer = Field(1, ge=1, le=64, description="Devices one layer is split over. Default: 1.")
    pipeline: Integer = Field(1, ge=1, le=64, description="Stages the layers are split into. Default: 1.")
    nodes: Integer = Field(1, ge=1, le=64, description="Machines one replica runs on. Default: 1.")


Size = Annotated[Integer, Field(ge=1, le=1_048_576)]

Ladder = Annotated[
    tuple[Size, ...],
    Field(min_length=1, max_length=MAX_SIZES, json_schema_extra=ATOMIC),
    Ruled(
        Rule("self.isSorted()", "sizes must be in ascending order", lambda sizes: list(sizes) == sorted(sizes)),
        Rule(
            "self.all(x, self.exists_one(y, y == x))",
            "sizes must not repeat",
            lambda sizes: len(set(sizes)) == len(sizes),
        ),
    ),
]


class Sizes(ApiModel):
    """The ladders: which padded sizes get a graph."""

    prefill: Ladder | None = Field(
        None,
        description="Padded token counts that get a prefill graph, ascending. Default: the resolver's ladder.",
    )
    decode: Ladder | None = Field(
        None,
        description="Batch sizes that get a decode graph, ascending. Default: the resolver's ladder.",
    )


DECODE_POLICIES = (Policy.Auto, Policy.Full, Policy.Breakable, Policy.Disabled)


class Graph(ApiModel):
    """What is asked of CUDA graphs. The answer is in status.graph."""

    prefill: Policy = Field(
        Policy.Auto,
        description="Graph policy of prefill. Default: Auto (Breakable, else Piecewise, else Disabled).",
    )
    decode: Policy = Field(
        Policy.Auto,
        description="Graph policy of decode. Default: Auto (Full, else Breakable, else Disabled).",
        json_schema_extra={"enum": [policy.value for policy in DECODE_POLICIES]},
    )
    sizes: Sizes = Field(Sizes(), description="Sizes that get a graph. Default: the resolver's ladders.")
    on_unsupported: OnUnsupported = Field(
        OnUnsupported.Degrade,
        description=(
            "When a rule says that the asked policy cannot work: Degrade takes the next weaker one and records "
            "why, Fail refuses the service. A policy that is not built is refused either way. Default: Degrade."
        ),
    )
    on_capture_failure: OnCaptureFailure = Field(
        OnCaptureFailure.Degrade,
        description=(
            "When a capture or its self-check fails: Degrade runs a weaker policy and records why, Fail keeps "
            "the pod from getting Ready. Default: Degrade."
        ),
    )

    @model_validator(mode="after")
    def _decode_is_never_piecewise(self) -> Graph:
        if self.decode not in DECODE_POLICIES:
            raise ValueError("graph.decode must be one of Auto, Full, Breakable, Disabled")
        return self


_ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16), Ruled(KEY_LENGTH)]


class Resources(ApiModel):
    """Compute resources of one pod."""

    requests: _ResourceMap = Field(
        {}, description="Reserved for each pod, as in a container (cpu, memory, …; quantities). Default: the limits."
    )
    limits: _ResourceMap = Field(
        {}, description="Most a pod may use, as in a container; nvidia.com/gpu asks for GPUs. Default: no limit."
    )


class TolerationOperator(StrEnum):
    """Kubernetes' own words."""

    Exists = "Exists"
    Equal = "Equal"


class TaintEffect(StrEnum):
    """Kubernetes' own words."""

    NoSchedule = "NoSchedule"
    PreferNoSchedule = "PreferNoSchedule"
    NoExecute = "NoExecute"


class Toleration(ApiModel):
    """A taint the pods accept."""

    RULES = (
        Rule(
            "has(self.key) || self.operator == 'Exists'",
            "a toleration without a key needs operator Exists",
            lambda taint: taint.key is not None or taint.operator is TolerationOperator.Exists,
        ),
        Rule(
            "!has(self.value) || self.operator == 'Equal'",
            "a toleration with operator Exists takes no value",
            lambda taint: taint.value is None or taint.operator is TolerationOperator.Equal,
        ),
        Rule(
            "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
            "tolerationSeconds needs effect NoExecute",
            lambda taint: taint.toleration_seconds is None or taint.effect is TaintEffect.NoExecute,
        ),
    )

    key: Label | None = Field(None, description="Taint key. Default: every key (operator must be Exists).")
    operator: TolerationOperator = Field(
        TolerationOperator.Equal, description="How key and value are compared. Default: Equal."
    )
    value: LabelValue | None = Field(None, description="Taint value when the operator is Equal. Default: empty.")
    effect: TaintEffect | None = Field(None, description="Taint effect. Default: every effect.")
    toleration_seconds: Integer | None = Field(
        None, ge=0, le=31_536_000, description="Seconds a NoExecute taint is borne. Default: for ever."
    )


class Placement(ApiModel):
    """Where the pods may run."""

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32), Ruled(KEY_LENGTH)] = Field(
        {}, description="Labels a node must carry. Default: none."
    )
    tolerations: tuple[Toleration, ...] = Field(
        (),
        max_length=16,
        description="Taints the pods accept. Default: none.",
        json_schema_extra=ATOMIC,
    )
    priority_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Priority class of the pods. Default: the cluster's."
    )
    runtime_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Runtime class of the pods. Default: the node's."
    )


class RolloutStrategy(StrEnum):
    """How pods of a new configuration take over."""

    Replace = "Replace"
    Surge = "Surge"


class Rollout(ApiModel):
    """How a change of the engine's configuration reaches the pods. Always rolling, one pod at a time."""

    strategy: RolloutStrategy | None = Field(
        None,
        description=(
            "Replace stops an old pod before it starts a new one and needs no spare device; Surge starts the new "
            "one first. Default: Replace with GPUs, Surge without."
        ),
    )
    drain_seconds: Integer = Field(
        30, ge=0, le=3600, description="Time open requests get when a pod stops, in seconds. Default: 30."
    )


class Spec(ApiModel):
    """What the user asks for."""

    model: Model = Field(description="Which weights to serve. Required.")
    engine: Engine = Field(Engine(), description="How the engine runs. Default: every default below.")
    parallelism: Parallelism = Field(
        Parallelism(), description="How one replica is spread over devices. Default: one device."
    )
    role: Role = Field(Role.Both, description="Which phases the replicas serve. Default: Both.")
    graph: Graph = Field(Graph(), description="What is asked of CUDA graphs. Default: Auto for both phases.")
    replicas: Integer = Field(1, ge=0, le=1000, description="Pods that serve the model. Default: 1.")
    resources: Resources = Field(Resources(), description="Compute resources of one pod. Default: none asked.")
    placement: Placement = Field(Placement(), description="Where the pods may run. Default: anywhere.")
    pod_template: PodTemplate = Field(
        PodTemplate(), description="What the pods carry beside what the operator puts there. Default: nothing."
    )
    rollout: Rollout = Field(Rollout(), description="How changes reach the pods. Default: see its fields.")
    suspend: Boolean = Field(False, description="Keep the object and its Service, run no pod. Default: false.")

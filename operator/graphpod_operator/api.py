"""InferenceService as frozen values: the one source of the CRD, of its manual and of what the operator reads.

Field names are camelCase on the wire. Each description is what `kubectl explain` prints, so it states the unit
and the default. Unconditional defaults are schema defaults; a default that depends on other fields is told in
the description and its value appears in status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from graphpod_operator.api_model import ABOVE_ZERO, LABEL_MAX, ApiModel, Label, LabelValue, Quantity, rule, rules
from graphpod_policy import OnCaptureFailure, OnUnsupported, Policy, Role

GROUP = "graphpod.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceService"
PLURAL = "inferenceservices"
SHORT_NAME = "gisvc"

NAME_MAX = 40
MAX_SIZES = 128


class Model(ApiModel):
    """Which weights to serve."""

    uri: str = Field(
        min_length=7,
        max_length=512,
        description=(
            "Where the weights are: pvc://CLAIM/FOLDER (a folder in a PersistentVolumeClaim of this namespace), "
            "hf://ORG/NAME@REVISION, s3://BUCKET/PREFIX or oci://REFERENCE. Only pvc:// is built in this version. "
            "Required, no default."
        ),
        json_schema_extra=rules(
            rule(
                "self.matches('^(pvc|hf|s3|oci)://.+')",
                "spec.model.uri must begin with one of pvc://, hf://, s3://, oci://",
            ),
            rule(
                "!self.startsWith('pvc://') || "
                "self.matches('^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_][-A-Za-z0-9._]*)*$')",
                "spec.model.uri with pvc:// must read pvc://CLAIM/FOLDER: a claim name, then folders of letters, "
                "digits, '.', '_' and '-' that do not begin with '.' or '-'",
            ),
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
    steps: int = Field(3, ge=1, le=16, description="Draft tokens proposed per pass, in tokens. Default: 3.")
    topk: int = Field(1, ge=1, le=16, description="Branches kept at each draft step. Default: 1 (a chain).")


class HostCache(ApiModel):
    """A second tier of the KV cache in host memory."""

    size: Quantity = Field(
        description="Host memory for KV pages, in bytes (a quantity). Required, no default.",
        json_schema_extra=ABOVE_ZERO,
    )


class CpuOffload(ApiModel):
    """Weights kept in host memory and copied in when needed."""

    size: Quantity = Field(
        description="Weights kept in host memory, in bytes (a quantity). Required, no default.",
        json_schema_extra=ABOVE_ZERO,
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
    max_model_len: int = Field(
        2048, ge=16, le=1_048_576, description="Longest prompt plus answer, in tokens. Default: 2048."
    )
    max_batch: int = Field(8, ge=1, le=1024, description="Most requests decoded in one pass. Default: 8.")
    page_size: int = Field(16, ge=1, le=256, description="Tokens held by one page of the KV cache. Default: 16.")
    kv_cache_memory: Quantity | None = Field(
        None,
        description=(
            "Memory for the KV cache, in bytes (a quantity). Default: what is left after the weights and the "
            "graphs on a GPU; room for maxBatch requests of maxModelLen tokens on a CPU."
        ),
        json_schema_extra=ABOVE_ZERO,
    )
    kv_cache_dtype: KvCacheDtype = Field(
        KvCacheDtype.Auto, description="Element type of the KV cache. Default: Auto (that of the activations)."
    )
    quantization: Quantization | None = Field(None, description="Format of the weights. Default: not quantized.")
    deterministic: bool = Field(
        False, description="Same tokens for the same request whatever else runs in the batch. Default: false."
    )
    speculative: Speculative | None = Field(None, description="Speculative decoding. Default: off.")
    host_cache: HostCache | None = Field(None, description="KV cache tier in host memory. Default: off.")
    cpu_offload: CpuOffload | None = Field(None, description="Weights kept in host memory. Default: off.")
    lora: tuple[LoraAdapter, ...] = Field(
        (),
        max_length=32,
        description="LoRA adapters served beside the model. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class Parallelism(ApiModel):
    """How one replica is spread over devices."""

    tensor: int = Field(1, ge=1, le=64, description="Devices one layer is split over. Default: 1.")
    pipeline: int = Field(1, ge=1, le=64, description="Stages the layers are split into. Default: 1.")
    nodes: int = Field(1, ge=1, le=64, description="Machines one replica runs on. Default: 1.")


_SIZES_RULES = rules(
    rule("self.isSorted()", "sizes must be in ascending order"),
    rule("self.all(x, self.exists_one(y, y == x))", "sizes must not repeat"),
) | {"x-kubernetes-list-type": "atomic"}

Size = Annotated[int, Field(ge=1, le=1_048_576)]


class Sizes(ApiModel):
    """The ladders: which padded sizes get a graph."""

    prefill: tuple[Size, ...] | None = Field(
        None,
        min_length=1,
        max_length=MAX_SIZES,
        description="Padded token counts that get a prefill graph, ascending. Default: the resolver's ladder.",
        json_schema_extra=_SIZES_RULES,
    )
    decode: tuple[Size, ...] | None = Field(
        None,
        min_length=1,
        max_length=MAX_SIZES,
        description="Batch sizes that get a decode graph, ascending. Default: the resolver's ladder.",
        json_schema_extra=_SIZES_RULES,
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


_KEY_RULES = rules(rule(f"self.all(key, size(key) <= {LABEL_MAX})", f"keys must have at most {LABEL_MAX} characters"))

_ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16, json_schema_extra=_KEY_RULES)]


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

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.key) || self.operator == 'Exists'", "a toleration without a key needs operator Exists"),
            rule("!has(self.value) || self.operator == 'Equal'", "a toleration with operator Exists takes no value"),
            rule(
                "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
                "tolerationSeconds needs effect NoExecute",
            ),
        )
    )

    key: Label | None = Field(None, description="Taint key. Default: every key (operator must be Exists).")
    operator: TolerationOperator = Field(
        TolerationOperator.Equal, description="How key and value are compared. Default: Equal."
    )
    value: LabelValue | None = Field(None, description="Taint value when the operator is Equal. Default: empty.")
    effect: TaintEffect | None = Field(None, description="Taint effect. Default: every effect.")
    toleration_seconds: int | None = Field(
        None, ge=0, le=31_536_000, description="Seconds a NoExecute taint is borne. Default: for ever."
    )


class Placement(ApiModel):
    """Where the pods may run."""

    node_selector: dict[str, LabelValue] = Field(
        {}, max_length=32, description="Labels a node must carry. Default: none.", json_schema_extra=_KEY_RULES
    )
    tolerations: tuple[Toleration, ...] = Field(
        (),
        max_length=16,
        description="Taints the pods accept. Default: none.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
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
    drain_seconds: int = Field(
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
    replicas: int = Field(1, ge=0, le=1000, description="Pods that serve the model. Default: 1.")
    resources: Resources = Field(Resources(), description="Compute resources of one pod. Default: none asked.")
    placement: Placement = Field(Placement(), description="Where the pods may run. Default: anywhere.")
    rollout: Rollout = Field(Rollout(), description="How changes reach the pods. Default: see its fields.")
    suspend: bool = Field(False, description="Keep the object and its Service, run no pod. Default: false.")

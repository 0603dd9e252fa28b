"""`spec.resources`, `spec.parallelism` and `spec.placement`: what a pod gets, over how many devices and pods a replica
is spread, and where pods may run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import (
    ATOMIC,
    KEY_LENGTH,
    LABEL_KEY,
    LEAST_BYTES,
    MOST_BYTES,
    PRUNED,
    ApiModel,
    Boolean,
    Bytes,
    Integer,
    Keyed,
    Label,
    LabelValue,
    ObjectName,
    Passthrough,
    Quantity,
    Ruled,
    ValidationRule,
    bytes_cel,
    is_bytes,
    one_of,
)
from graphpod_policy import AllToAll

_OF_BYTES = ("memory", "ephemeral-storage")
_BYTES = ValidationRule(
    f"{one_of(_OF_BYTES)}.all(name, !(name in self) || {bytes_cel('self[name]')})",
    f"{' and '.join(_OF_BYTES)} must be from {LEAST_BYTES} to {MOST_BYTES} (bytes; m is a thousandth)",
    lambda amounts: all(name not in amounts or is_bytes(amounts[name]) for name in _OF_BYTES),
)
_ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16), PRUNED, Ruled(KEY_LENGTH, _BYTES)]


class Resources(ApiModel):
    """What one pod gets."""

    requests: _ResourceMap = Field(
        {},
        description="Reserved for each pod, as in a container (cpu, memory, ephemeral-storage, …; quantities). "
        "Default: the limits.",
    )
    limits: _ResourceMap = Field(
        {},
        description="Most a pod may use, as in a container; nvidia.com/gpu requests GPUs, one for each "
        "rank of the pod (parts of one, and chips of other vendors, are refused). Default: no limit.",
    )
    shared_memory: Bytes = Field(
        "1Gi",
        description="Size of /dev/shm, in bytes (a quantity); what is used counts as memory. NCCL moves data through "
        "it between GPUs without peer access. Default: 1Gi.",
    )
    scratch: Bytes = Field(
        "1Gi",
        description="Size of /tmp, which holds compile caches, in bytes (a quantity); the pod is evicted above it. "
        "Default: 1Gi.",
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
        ValidationRule(
            "has(self.key) || self.operator == 'Exists'",
            "a toleration without a key needs operator Exists",
            lambda taint: taint.key is not None or taint.operator is TolerationOperator.Exists,
        ),
        ValidationRule(
            "!has(self.value) || self.operator == 'Equal'",
            "a toleration with operator Exists takes no value",
            lambda taint: taint.value is None or taint.operator is TolerationOperator.Equal,
        ),
        ValidationRule(
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
        None,
        ge=0,
        le=31_536_000,
        description="How long the pod tolerates a NoExecute taint, in seconds. Default: for ever.",
    )


class WhenUnsatisfiable(StrEnum):
    """Kubernetes' own words."""

    ScheduleAnyway = "ScheduleAnyway"
    DoNotSchedule = "DoNotSchedule"


class TopologySpread(ApiModel):
    """How evenly the replicas are spread over one topology."""

    topology_key: Annotated[Label, Field(min_length=1, pattern=LABEL_KEY)] = Field(
        description="Node label whose values are the places, such as topology.kubernetes.io/zone. Required, no default."
    )
    max_skew: Integer = Field(1, ge=1, le=1000, description="Most replicas by which two places may differ. Default: 1.")
    when_unsatisfiable: WhenUnsatisfiable = Field(
        WhenUnsatisfiable.ScheduleAnyway,
        description="When the skew cannot be kept: ScheduleAnyway, or let the pod wait. Default: ScheduleAnyway.",
    )


class Affinity(ApiModel):
    """Affinity as in a pod."""

    node_affinity: Passthrough | None = Field(None, description="As in a pod. Default: none.")
    pod_affinity: Passthrough | None = Field(None, description="As in a pod. Default: none.")
    pod_anti_affinity: Passthrough | None = Field(
        None, description="As in a pod. Default: replicas prefer different nodes."
    )


class Placement(ApiModel):
    """Where the pods may run."""

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32), PRUNED, Ruled(KEY_LENGTH)] = Field(
        {}, description="Labels a node must carry. Default: none."
    )
    tolerations: tuple[Toleration, ...] = Field(
        (), max_length=16, description="Taints the pods accept. Default: none.", json_schema_extra=ATOMIC
    )
    affinity: Affinity = Field(Affinity(), description="Affinity to nodes and pods. Default: see its fields.")
    topology_spread: Annotated[tuple[TopologySpread, ...], Field(max_length=8), Keyed("topology_key")] = Field(
        (), description="How evenly the replicas are spread, counted per revision. Default: no constraint."
    )
    priority_class_name: ObjectName | None = Field(
        None, description="Priority class of the pods. Default: the cluster's."
    )
    runtime_class_name: ObjectName | None = Field(None, description="Runtime class of the pods. Default: the node's.")
    scheduler_name: ObjectName | None = Field(
        None,
        description="Scheduler of the pods, such as volcano. Without one of this name they wait, and nothing says why. "
        "Default: the cluster's.",
    )
    do_not_disrupt: Boolean = Field(
        False,
        description="Request that node autoscalers (cluster-autoscaler, Karpenter) do not evict these pods to save "
        "a node. Use it for one replica, which no disruption budget protects. Default: false.",
    )


class Parallelism(ApiModel):
    """How one replica is spread over devices."""

    RULES = (
        ValidationRule(
            # the server checks the default {}, too, before it fills in the fields' own defaults
            "!has(self.allToAll) && !(has(self.expertRebalancing) && self.expertRebalancing) || self.expert > 1",
            "parallelism.allToAll and expertRebalancing need parallelism.expert above 1",
            lambda spread: spread.expert > 1 or (spread.all_to_all is None and not spread.expert_rebalancing),
        ),
    )

    tensor: Integer = Field(
        1,
        ge=1,
        le=64,
        description="Devices one layer is split over; nvidia.com/gpu in resources.limits has the same number, or that "
        "times pipeline, divided by nodes. It must divide the model's heads, MLP columns and vocabulary. Default: 1.",
    )
    pipeline: Integer = Field(
        1,
        ge=1,
        le=64,
        description="Stages the layers are split into; nvidia.com/gpu in resources.limits is tensor times this number, "
        "divided by nodes. It is at most the model's layers, and need not divide them. Default: 1.",
    )
    data: Integer = Field(1, ge=1, le=64, description="Ranks of data-parallel attention. Default: 1.")
    expert: Integer = Field(
        1,
        ge=1,
        le=256,
        description="Groups that the experts of each layer are spread over, where a model has any. It divides tensor "
        "and the number of experts; each group has tensor / expert devices, which share the columns of its experts. "
        "Default: 1, each device has columns of every expert.",
    )
    context: Integer = Field(1, ge=1, le=64, description="Parts one sequence is split into. Default: 1.")
    nodes: Integer = Field(
        1,
        ge=1,
        le=64,
        description="Pods that one replica runs on, a group of the kind LeaderWorkerSet. They divide the ranks, tensor "
        "times pipeline, evenly; resources are for each pod. Default: 1.",
    )
    all_to_all: AllToAll | None = Field(
        None, description="How tokens are exchanged between experts. Default: the engine's choice."
    )
    two_batch_overlap: Boolean = Field(
        False, description="Compute one half of a batch while the other half travels. Default: false."
    )
    expert_rebalancing: Boolean = Field(
        False, description="Move experts between devices as their load changes. Default: false."
    )
    symmetric_memory: Boolean = Field(
        False, description="Collectives over memory that every device addresses alike. Default: false."
    )

    @property
    def ranks(self) -> int:
        """Processes of one replica, each with a device of its own."""
        return self.tensor * self.pipeline

    @property
    def ranks_of_pod(self) -> int:
        """Those of one pod; all pods of a replica have as many."""
        return max(1, self.ranks // self.nodes)

"""How a service is kept running: its autoscaling, rollouts, updates, objectives and monitoring."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import (
    KEY_LENGTH,
    PRUNED,
    ApiModel,
    Boolean,
    Integer,
    LabelValue,
    PositiveDuration,
    PositiveQuantity,
    Ruled,
    ValidationRule,
    one_of,
)
from graphpod_operator.api.pod import MAX_ITEMS, OWNED_LABELS, OWNED_PREFIX


class ScalingProvider(StrEnum):
    """Who changes the number of replicas."""

    HPA = "HPA"
    KEDA = "KEDA"


class ScalingMetric(StrEnum):
    """What a replica's load is measured by."""

    RunningRequests = "RunningRequests"
    WaitingRequests = "WaitingRequests"
    KvCacheUsage = "KvCacheUsage"


class Autoscaling(ApiModel):
    """Replicas by load. spec.replicas is ignored meanwhile."""

    RULES = (
        ValidationRule(
            "self.min <= self.max",
            "autoscaling.min must not be above autoscaling.max",
            lambda scaling: scaling.min <= scaling.max,
        ),
    )

    min: Integer = Field(1, ge=1, le=1000, description="Fewest replicas. Default: 1.")
    max: Integer = Field(ge=1, le=1000, description="Most replicas. Required, no default.")
    metric: ScalingMetric = Field(
        ScalingMetric.WaitingRequests,
        description="Load of a replica: requests that run, requests that wait, or the share of its KV cache in use. "
        "Default: WaitingRequests.",
    )
    target: PositiveQuantity = Field(
        description="Load of a replica to keep to: requests, or a share such as 800m. Required, no default."
    )
    provider: ScalingProvider = Field(
        ScalingProvider.HPA,
        description="HorizontalPodAutoscaler, for an adapter that serves the pods' metrics; or a ScaledObject of KEDA, "
        "which queries the Prometheus in the operator's --prometheus-url. Default: HPA.",
    )


class RolloutStrategy(StrEnum):
    """How pods of a new configuration take over."""

    Replace = "Replace"
    Surge = "Surge"


class Rollout(ApiModel):
    """How a change of the engine's configuration reaches the pods. Always rolling."""

    RULES = (
        ValidationRule(
            "!has(self.maxUnavailable) || has(self.strategy) && self.strategy == 'Replace'",
            "rollout.maxUnavailable needs rollout.strategy Replace: Surge stops no pod before a new one serves",
            lambda rollout: rollout.max_unavailable is None or rollout.strategy is RolloutStrategy.Replace,
        ),
    )

    strategy: RolloutStrategy | None = Field(
        None,
        description=(
            "Replace stops an old pod before it starts a new one and needs no spare device; Surge starts the new "
            "one first. Default: Replace with GPUs, Surge without."
        ),
    )
    max_unavailable: Integer | None = Field(
        None, ge=1, le=1000, description="Pods replaced at the same time by strategy Replace. Default: 1."
    )
    drain_seconds: Integer = Field(
        30, ge=0, le=3600, description="Time open requests get when a pod stops, in seconds. Default: 30."
    )


class Updates(StrEnum):
    """Whether a newer operator's image, rules and rendering reach a service by themselves."""

    Pinned = "Pinned"
    Auto = "Auto"


class Slo(ApiModel):
    """What is promised to clients; the alerts about objectives follow from it."""

    ttft: PositiveDuration | None = Field(
        None,
        description="99 % of the first tokens come within this time (500ms, 2s). Alerts count by the bounds of the "
        "histogram, so another value counts as the next larger one. Default: the alerts use 1s.",
    )
    itl: PositiveDuration | None = Field(
        None,
        description="99 % of the gaps between tokens are at most this long (50ms). It counts as ttft does. Default: "
        "the alerts use 50ms.",
    )


OWN_MONITOR_LABELS = ValidationRule(
    f"!self.exists(key, key.startsWith('{OWNED_PREFIX}') || key in {one_of(OWNED_LABELS)})",
    f"monitoring.labels: {OWNED_PREFIX}… and {', '.join(OWNED_LABELS)} are the operator's",
    lambda labels: not any(key.startswith(OWNED_PREFIX) or key in OWNED_LABELS for key in labels),
)


class Monitoring(ApiModel):
    """Objects for Prometheus."""

    enabled: Boolean = Field(
        False,
        description="Create a PodMonitor for the pods' /metrics. If the cluster does not serve the kind, the "
        "condition MonitorReady says so, and the operator creates it when it does. Default: false.",
    )
    labels: Annotated[
        dict[str, LabelValue], Field(max_length=MAX_ITEMS), PRUNED, Ruled(KEY_LENGTH, OWN_MONITOR_LABELS)
    ] = Field(
        {},
        description="Labels by which your Prometheus selects PodMonitors (podMonitorSelector), such as release: "
        "kube-prometheus-stack. They override those of the chart's monitoring.podMonitors.labels. Default: none.",
    )

"""The conditions of an InferenceService: which there are, what each says when it is True, and which make up Ready."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """The conditions of an InferenceService, in the order of the status: the verdict, what it is made of, the rest."""

    Ready = "Ready"
    Stalled = "Stalled"
    Reconciling = "Reconciling"
    Available = "Available"
    Accepted = "Accepted"
    ModelAvailable = "ModelAvailable"
    WorkloadAvailable = "WorkloadAvailable"
    GraphsCaptured = "GraphsCaptured"
    Scheduled = "Scheduled"
    Degraded = "Degraded"
    Asleep = "Asleep"
    RouteReady = "RouteReady"
    ScalingReady = "ScalingReady"
    MonitorReady = "MonitorReady"
    PolicyUpdateAvailable = "PolicyUpdateAvailable"
    EngineUpdateAvailable = "EngineUpdateAvailable"


MEANING: dict[ConditionType, str] = {
    ConditionType.Ready: "Accepted, ModelAvailable, WorkloadAvailable and GraphsCaptured are True. Otherwise the "
    "reason and message are those of the condition that explains most: look the reason up below that condition.",
    ConditionType.Stalled: "Present only while True: the service cannot become Ready without a change. "
    "Reason and message are those of Ready.",
    ConditionType.Reconciling: "Present only while True: the operator or the pods are still working towards Ready. "
    "Its reason is Progressing.",
    ConditionType.Available: "At least one pod that has proved its graphs serves, also one of an earlier generation.",
    ConditionType.Accepted: "The spec is valid, the rules have a plan for it, and its objects are applied.",
    ConditionType.ModelAvailable: "A pod of the planned configuration has loaded the weights.",
    ConditionType.WorkloadAvailable: "As many pods of the current spec serve as requested.",
    ConditionType.GraphsCaptured: "Every serving pod runs the planned configuration and has proved its graphs.",
    ConditionType.Scheduled: "Every pod of the current spec has a node.",
    ConditionType.Degraded: "A pod runs a weaker policy than planned.",
    ConditionType.Asleep: "Present only while the annotation graphpod.dev/sleep asks pods to sleep. While True, every "
    "pod sleeps until it is woken, so no pod is ready, and Ready is False.",
    ConditionType.RouteReady: "Present only while spec.networking.route is set: every gateway that it names accepts "
    "the route, and the operator's NetworkPolicy admits its namespace. Ready does not wait for it.",
    ConditionType.ScalingReady: "Present only while spec.autoscaling decides on the number of pods: the "
    "autoscaler can scale them.",
    ConditionType.MonitorReady: "Present only while spec.monitoring.enabled: a Prometheus scrapes the pods. "
    "Ready does not wait for it.",
    ConditionType.PolicyUpdateAvailable: "The rules of this operator would plan the spec differently; the pods keep "
    "their earlier plan.",
    ConditionType.EngineUpdateAvailable: "This operator would create the pods differently, for example with another "
    "image; the running pods stay.",
}

ROOTS = (
    ConditionType.Accepted,
    ConditionType.ModelAvailable,
    ConditionType.WorkloadAvailable,
    ConditionType.GraphsCaptured,
)
"""The conditions Ready is made of."""
UPDATES = (ConditionType.PolicyUpdateAvailable, ConditionType.EngineUpdateAvailable)
"""What a newer operator offers a service."""

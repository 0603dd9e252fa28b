"""The reasons of GraphsCaptured."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType

_G = (ConditionType.GraphsCaptured,)
_D = (ConditionType.Degraded,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown

# fmt: off
ROWS = {
    "Captured": ReasonRow(
        _G, _T, "every serving pod captured and proved the planned graphs", "a pod or the plan changes"
    ),
    "Degraded": warns(
        (*_G, *_D), _T, "every serving pod proved its graphs, some run a weaker policy than planned",
        "the planned policy runs", "for the cause see Decisions: kubectl -n NAMESPACE describe "
        "inferenceservices.graphpod.dev NAME",
    ),
    "NotRequired": ReasonRow(_G, _T, "both phases are planned Disabled and the pods run that", "the plan has graphs"),
    "CapturePending": ReasonRow(
        _G, _U, "no pod of the planned configuration has started to capture", "a pod captures", consequence=True,
    ),
    "Capturing": ReasonRow(_G, _F, "a pod is capturing its graphs", "every pod has captured its graphs"),
    "SelfChecking": ReasonRow(
        _G, _F, "a pod is comparing its graphs with uncaptured code", "every pod's self-check ended",
    ),
    "PreviousServing": ReasonRow(
        _G, _F, "a pod of an earlier configuration still serves", "only the planned configuration serves",
    ),
    "EngineUnreachable": warns(
        _G, _U, "a running pod's admin port does not answer the operator", "the port answers",
        "let every NetworkPolicy admit the operator's pods to port 8001: kubectl -n NAMESPACE describe "
        "networkpolicies",
        own_step=True,
    ),
    "EngineMisreports": warns(
        _G, _U, "a running pod's admin port answers without a warm-up report, or with that of another pod or "
        "configuration",
        "the pod reports its own configuration",
        "set spec.engine.image to an image of this operator's version, and let no other "
        "process of the pod use port 8001",
    ),
    "PolicyUnsupported": stalls(
        _G, _F, "the engine found that an explicitly requested policy cannot work with this model or device, and "
        "spec.graph.onUnsupported is Fail (exit code 18)", "a pod captures its graphs",
        "set spec.graph.onUnsupported: Degrade, or choose another policy",
    ),
    "CaptureFailed": stalls(
        _G, _F, "a capture failed and spec.graph.onCaptureFailure is Fail (exit code 12)", "a pod captures its graphs",
        "set spec.graph.onCaptureFailure: Degrade, or choose another policy",
    ),
    "CaptureOutOfMemory": stalls(
        _G, _F, "capture ran out of memory and no shorter ladder was left (exit code 13)", "a pod captures its graphs",
        "shorten spec.graph.sizes or lower spec.engine.maxBatch; without a GPU raise spec.resources.limits.memory",
    ),
    "StartDied": warns(
        _G, _F, "a capture ended the engine's process, and spec.graph.onCaptureFailure is Degrade",
        "a pod captures its graphs, by a weaker plan if starts keep failing",
        "the operator retries, and after spec.graph.retries more failures uses a weaker policy; see kubectl -n "
        "NAMESPACE logs "
        "POD --previous",
    ),
    "CompileFailed": stalls(
        _G, _F, "a function of the model could not be compiled and spec.graph.onCaptureFailure is Fail (exit code 19)",
        "a pod compiles it",
        "see kubectl -n NAMESPACE logs POD --previous; set spec.graph.compile: None, or spec.graph.onCaptureFailure: "
        "Degrade",
    ),
    "SelfCheckFailed": stalls(
        _G, _F, "a replay differed from the uncaptured code (exit code 14)", "a pod proves its graphs",
        "set spec.graph.onCaptureFailure: Degrade, and report the failure as an issue",
    ),
}

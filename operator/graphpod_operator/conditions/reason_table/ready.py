"""The reasons of Ready, of Reconciling, and of the conditions that Ready is not made of."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import Notice, ReasonRow, warns
from graphpod_operator.conditions.types import ConditionType

_R = (ConditionType.Ready,)
_C = (ConditionType.Reconciling,)
_S = (ConditionType.Scheduled,)
_V = (ConditionType.Available,)
_D = (ConditionType.Degraded,)
_P = (ConditionType.PolicyUpdateAvailable,)
_E = (ConditionType.EngineUpdateAvailable,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown

# fmt: off
ROWS = {
    # Ready
    "Ready": ReasonRow(
        _R, _T, "all four conditions are True and nothing is degraded", "one of them is not True", notice=Notice.Normal,
    ),
    # Scheduled
    "Scheduled": ReasonRow(
        _S, _T, "every pod of the current spec has a node", "a pod has no node", notice=Notice.Normal,
    ),
    "PodsPending": ReasonRow(
        _S, _U, "a pod of the current spec does not exist yet, or the scheduler has not processed it",
        "every pod has a node",
        consequence=True,
    ),
    # Available
    "Serving": ReasonRow(
        _V, _T, "a pod that has proved its graphs serves, also one of an earlier generation", "no such pod serves",
    ),
    "NothingServes": ReasonRow(
        _V, _F, "no pod is ready", "a pod is ready", "see the condition Ready", consequence=True,
    ),
    "Unproved": ReasonRow(
        _V, _U, "pods are ready, and none has reported its graphs to the operator", "a pod has reported its graphs",
        "see the condition GraphsCaptured", consequence=True,
    ),
    # Degraded
    "StartsDied": warns(
        _D, _T, "so many starts failed in a capture (exit codes 12, 13, 14, 19) that the operator plans a weaker "
        "policy",
        "the spec, the image or the annotation graphpod.dev/adopt changes",
        "to try again: kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME --overwrite "
        "graphpod.dev/adopt=again-$(date +%s)",
    ),
    "AsPlanned": ReasonRow(_D, _F, "no pod has reported a weaker policy than planned", "a pod reports a weaker policy"),
    # PolicyUpdateAvailable, EngineUpdateAvailable
    "UpToDate": ReasonRow(
        (*_P, *_E), _F, "this operator would plan and create the same pods", "a newer operator would create other pods",
    ),
    "NewPolicy": ReasonRow(
        _P, _T, "this operator's rules would give the engine another configuration or start budget",
        "the revision is adopted, or the spec changes",
        "kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME --overwrite graphpod.dev/adopt=REVISION",
    ),
    "RulesRefuse": ReasonRow(
        _P, _T, "this operator version rejects the spec, and its pods run on an earlier plan", "the spec changes",
        "the pods keep running, but correct the spec before any other change",
    ),
    "NewEngine": ReasonRow(
        _E, _T, "this operator has another default image or pod template",
        "the revision is adopted, or the spec changes",
        "kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME --overwrite graphpod.dev/adopt=REVISION",
    ),
    # Reconciling
    "Progressing": ReasonRow(_C, _T, "Ready is not True and nothing is stalled", "Ready is True, or stalled"),
}

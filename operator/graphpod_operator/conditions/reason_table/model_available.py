"""The reasons of ModelAvailable."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType
from graphpod_policy import NEXT_STEP, ExitCode

_M = (ConditionType.ModelAvailable,)
_S = (ConditionType.Scheduled,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown

# fmt: off
ROWS = {
    "Loaded": ReasonRow(
        _M, _T, "a pod of the planned configuration has loaded the weights", "the configuration changes",
    ),
    "Loading": ReasonRow(
        _M, _F, "a pod is loading the weights, and none has loaded them", "a pod has loaded the weights",
        consequence=True,
    ),
    "ModelPending": ReasonRow(_M, _U, "no pod has reported about the weights yet", "a pod reports", consequence=True),
    "ClaimNotFound": stalls(
        (*_M, *_S), _F, "the claim in spec.model.uri does not exist", "the claim exists",
        "create the PersistentVolumeClaim, or correct spec.model.uri",
    ),
    "ClaimNotBound": warns(
        (*_M, *_S), _F, "the claim in spec.model.uri has no volume yet", "the claim is bound",
        "for the cause: kubectl -n NAMESPACE describe pvc",
    ),
    "ModelInvalid": stalls(
        _M, _F, "the engine found no weights it can read (exit code 11)", "a pod loads the weights",
        "correct the folder in spec.model.uri, or its files", own_step=True,
    ),
    "SourceFailed": stalls(
        _M, _F, "streamed weights do not come from their source (exit code 33); the message begins with the cause, in "
        "the words of downloads", "a pod loads the weights",
        "the pod tries again by itself", own_step=True,
    ),
    "ModelUnsupported": stalls(
        _M, _F, "the engine does not have the model's architecture, or something its config.json requires (exit code "
        "25)", "a pod loads the weights", NEXT_STEP[ExitCode.ModelUnsupported],
    ),
}

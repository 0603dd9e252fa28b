"""The reasons of weights that sleep by the annotation graphpod.dev/sleep, or are replaced by graphpod.dev/reload."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import Notice, ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType

_M = (ConditionType.ModelAvailable,)
_W = (ConditionType.WorkloadAvailable,)
_A = (ConditionType.Asleep,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown
_WAKE = "to wake it: kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME graphpod.dev/sleep-"
_RELOAD = (
    "correct what the message names, then: kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME "
    "--overwrite graphpod.dev/reload=again-$(date +%s)"
)

# fmt: off
ROWS = {
    # WorkloadAvailable
    "Sleeping": ReasonRow(
        _W, _F, "every pod sleeps by the annotation graphpod.dev/sleep", "the annotation is removed", _WAKE,
        notice=Notice.Normal,
    ),
    "FallingAsleep": ReasonRow(
        (*_W, *_A), _F, "pods finish their open requests, or copy their weights to the host, before they sleep",
        "every pod sleeps", consequence=True,
    ),
    "SleepPaused": ReasonRow(
        (*_W, *_A), _F, "the annotation graphpod.dev/paused is true: pods are neither put to sleep nor woken",
        "that annotation is removed",
        "to continue: kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME graphpod.dev/paused-; or send "
        "the pods POST /sleep or /wake yourself",
        notice=Notice.Normal,
    ),
    "Waking": ReasonRow(
        _W, _F, "weights come back to pods that slept by the annotation graphpod.dev/sleep", "every pod serves",
        consequence=True,
    ),
    "WakeRefused": warns(
        _W, _F, "a pod cannot take its weights back: other processes have the memory of its device, or the files were "
        "replaced", "the pod wakes; the operator tries again, at most every 10 min",
        "free that memory, or delete the pod: another one starts, with the files that are there now",
    ),
    # Asleep
    "Asleep": ReasonRow(_A, _T, "every pod sleeps until it is woken", "the annotation is removed", _WAKE),
    "SleepPending": ReasonRow(
        _A, _F, "pods of a rollout start: they sleep once it has ended", "the rollout has ended", consequence=True,
    ),
    "SleepRefused": warns(
        _A, _F, "the annotation graphpod.dev/sleep cannot be obeyed; the pods continue to serve",
        "the cause is corrected, or the annotation is removed",
        "correct what the message names, or remove the annotation: kubectl -n NAMESPACE annotate "
        "inferenceservices.graphpod.dev NAME graphpod.dev/sleep-",
        own_step=True,
    ),
    # ModelAvailable
    "Reloaded": ReasonRow(
        _M, _T, "every pod serves the weights that the annotation graphpod.dev/reload names", "the annotation changes",
        notice=Notice.Normal,
    ),
    "Reloading": ReasonRow(
        _M, _F, "pods read new weights into the places of the old ones, one after another", "every pod has them",
        "open requests end first; for each pod: kubectl -n NAMESPACE get gisvc NAME -o jsonpath={.status.weights.pods}",
    ),
    "ReloadPending": ReasonRow(
        _M, _F, "pods sleep or still start, and get the weights of the annotation graphpod.dev/reload after that",
        "the first pod reads them", consequence=True,
    ),
    "ReloadRefused": stalls(
        _M, _F, "the annotation graphpod.dev/reload cannot be obeyed; a pod that refuses new weights serves on with "
        "the old ones", "the annotation changes", _RELOAD, own_step=True,
    ),
}

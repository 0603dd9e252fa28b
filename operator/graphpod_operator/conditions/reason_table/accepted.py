"""The reasons of Accepted, and the one of every condition while it is not True."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import Notice, ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType

_A = (ConditionType.Accepted,)
_M = (ConditionType.ModelAvailable,)
_W = (ConditionType.WorkloadAvailable,)
_G = (ConditionType.GraphsCaptured,)
_S = (ConditionType.Scheduled,)
_D = (ConditionType.Degraded,)
_P = (ConditionType.PolicyUpdateAvailable,)
_E = (ConditionType.EngineUpdateAvailable,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown

# fmt: off
ROWS = {
    # Accepted
    "Accepted": ReasonRow(_A, _T, "the spec has a plan and its objects are applied", "a later spec is refused"),
    "Paused": ReasonRow(
        _A, _T, "the annotation graphpod.dev/paused is true: only the status is written", "the annotation is removed",
        "to apply changes again: kubectl -n NAMESPACE annotate inferenceservices.graphpod.dev NAME "
        "graphpod.dev/paused-",
        notice=Notice.Normal,
    ),
    "SpecInvalid": stalls(
        _A, _F, "the stored spec does not fit this operator's API, or the API server refuses the Deployment for a part "
        "that comes from spec.resources or spec.placement", "the spec is edited",
        "correct it: kubectl -n NAMESPACE edit gisvc NAME; running pods stay",
    ),
    "SpecTooLarge": stalls(
        _A, _F, "the object, or one made from it, is larger or nested deeper than the operator reads: 512 KiB, and of "
        "the spec 4096 values and 32 levels", "the object is within these limits",
        "shorten or remove that field, or delete the object",
    ),
    "FeatureNotBuilt": stalls(
        _A, _F, "the spec requests a feature that this version does not have", "the field is removed or changed",
        "remove or change that field; for what is built: kubectl explain inferenceservices.graphpod.dev.spec",
        own_step=True,
    ),
    "PolicyRefused": stalls(
        _A, _F, "a rule excludes the requested policy and spec.graph.onUnsupported is Fail",
        "the policy or the feature changes",
        "set spec.graph.onUnsupported: Degrade, or choose another policy",
    ),
    "NotAllowed": stalls(
        _A, _F, "the spec uses a volume type, a Gateway, a hostname or an image that the operator's installer does not "
        "allow; running pods stay as they are", "the spec or the list is changed",
        "change that field, or ask the operator's admin to extend that list in the chart's values",
    ),
    "PodTemplateInvalid": stalls(
        _A, _F, "spec.podTemplate uses a name reserved for the operator, or the API server refuses the Deployment "
        "for a part that comes from it", "spec.podTemplate is corrected",
        "correct spec.podTemplate: kubectl -n NAMESPACE edit gisvc NAME; running pods stay",
    ),
    "NameCollision": stalls(
        _A, _F, "an object with a name that the operator needs belongs to another owner; nothing is written",
        "that object is gone",
        "rename the InferenceService, or delete that object; the operator retries every minute",
    ),
    "OwnerMissing": stalls(
        _A, _F, "an object that the operator applied has lost its owner reference to the service; nothing is written",
        "the owner reference is there again, or the object is gone",
        "give it the owner again by the last commands of docs/operations/backup.md: pods keep running; the operator "
        "retries every minute",
    ),
    "ClaimOfOneNode": stalls(
        _A, _F, "the claim of spec.model.cache can be mounted on one node only, and the spec allows several pods",
        "the claim is ReadWriteMany, or one pod is allowed",
        "set spec.model.cache.accessMode: ReadWriteMany for a new claim, or one pod by spec.replicas: 1 and "
        "spec.parallelism.nodes: 1, or keep the pods on one node by "
        "spec.placement.nodeSelector[kubernetes.io/hostname]",
    ),
    "CacheClaimImmutable": stalls(
        _A, _F, "spec.model.cache.storageClassName differs from the class of the claim, and no claim changes its class",
        "they are equal, or the claim is another",
        "set the class of the claim; for another class delete the claim, or name another in spec.model.cache.claim",
    ),
    "KedaMissing": stalls(
        _A, _F, "spec.autoscaling.provider is KEDA, and the operator cannot use the kind ScaledObject",
        "the operator can use the kind; it retries every minute", "install KEDA, or set spec.autoscaling.provider: HPA",
    ),
    "LeaderWorkerSetMissing": stalls(
        _A, _F, "spec.parallelism.nodes is above 1, and the operator cannot use the kind LeaderWorkerSet",
        "the operator can use the kind; it retries every minute",
        "install LeaderWorkerSet, and let optionalKinds.leaderWorkerSets of the chart be true; or set "
        "spec.parallelism.nodes: 1",
    ),
    "LeaderWorkerSetOutdated": warns(
        (*_A, *_W), _F, "the CRD of LeaderWorkerSet lacks a field that the operator sets: it is older than version 0.7 "
        "(Accepted); or its controller is older than 0.9 and does not begin a rollout of one group with the strategy "
        "Surge (WorkloadAvailable)", "LeaderWorkerSet is updated, or the strategy is Replace",
        "install LeaderWorkerSet 0.9 or newer, its CRD included", own_step=True,
    ),
    "PrometheusUnknown": stalls(
        _A, _F, "spec.autoscaling.provider is KEDA, and the operator has no Prometheus address",
        "the operator has one",
        "helm upgrade --reuse-values --set prometheusUrl=URL, or set spec.autoscaling.provider: HPA",
    ),
    "ApplyRefused": warns(
        _A, _F, "the API server refused one of the objects", "the object is accepted",
        "fix the field that the server names; running pods stay, and the operator retries, at most every 5 min",
    ),
    "KueueRefused": warns(
        _A, _F, "a webhook of Kueue refuses the change of a Deployment or LeaderWorkerSet that is in a queue; its pods "
        "stay as they are", "Kueue accepts the change",
        "undo the change, or delete that object, which ends the pods: the operator makes it again", own_step=True,
    ),
    "ObjectQuotaExceeded": warns(
        _A, _F, "a ResourceQuota of the namespace does not admit one of the objects", "the quota admits the object",
        "raise or free the quota: kubectl -n NAMESPACE describe resourcequota; the operator retries, at most every 5 "
        "min",
    ),
    "PreviousDeleting": ReasonRow(
        _A, _U, "objects of a deleted InferenceService of this name are still being removed", "these objects are gone",
        "wait for garbage collection",
    ),
    # every condition below Accepted
    "NotAccepted": ReasonRow(
        (*_M, *_W, *_G, *_S, *_D, *_P, *_E), _U, "Accepted is not True", "Accepted is True",
        "see the condition Accepted", consequence=True,
    ),
}

"""Reasons that no condition has: only an event reports them."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import Notice, ReasonRow, warns

_T = ConditionStatus.true

# fmt: off
ROWS = {
    "Planned": ReasonRow(
        (), _T, "the spec has a plan; its pods are new, or wait for weights or for the end of a pause",
        "reported once for a revision", notice=Notice.Normal,
    ),
    "RolloutStarted": ReasonRow(
        (), _T, "pods of another revision replace those that run; the Event Ready, or Degraded, says that it has "
        "ended; a weaker plan after failed starts has the Event StartsDied instead",
        "reported once for a revision", notice=Notice.Normal,
    ),
    "PutBack": warns(
        (), _T, "somebody changed the Deployment, and it was put back", "reported once in ten minutes",
        "change the InferenceService instead (kubectl -n NAMESPACE scale gisvc/NAME --replicas=N); to roll back, "
        "apply its earlier "
        "spec again; kubectl rollout restart is respected",
    ),
    "Contested": warns(
        (), _T, "another writer keeps changing an object or the status, and the operator puts it back less often "
        "each time",
        "reported once in ten minutes", "find the other writer: kubectl -n NAMESPACE get "
        "inferenceservices.graphpod.dev,deployments NAME -o yaml --show-managed-fields",
    ),
    "ChangedAtAdmission": warns(
        (), _T, "an admission webhook or policy of the cluster changes an object as the operator applies it, and the "
        "operator leaves it so", "reported once in ten minutes for a spec",
        "if that is not meant, exclude the namespace from it: kubectl get mutatingwebhookconfigurations",
    ),
    "ReplicasIgnored": warns(
        (), _T, "somebody set spec.replicas, by kubectl scale for one, while spec.autoscaling decides",
        "reported once after each change", "change spec.autoscaling.min and max, or remove spec.autoscaling",
    ),
    "AnnotationIgnored": warns(
        (), _T, "the annotation graphpod.dev/paused is neither \"true\" nor \"false\", so the service is not paused",
        "reported once in 10 min", "set it to \"true\", or remove it: kubectl -n NAMESPACE annotate gisvc NAME "
        "--overwrite graphpod.dev/paused=true",
    ),
    "MemoryUnreadable": warns(
        (), _T, "a ControllerRevision of the service is corrupt, and the service continues without it",
        "reported once by each run of the operator", "delete that ControllerRevision: kubectl -n NAMESPACE delete "
        "controllerrevision",
    ),
    "ObjectSkipped": warns(
        (), _T, "an object with the service's label is larger, or nested deeper, than the operator reads, or cannot be "
        "read: only its metadata counts", "reported at most once in ten minutes",
        "delete it with kubectl delete: the operator creates its own objects again",
    ),
}

"""The reasons of WorkloadAvailable: why pods are not created, do not start, or do not serve."""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import Notice, ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType
from graphpod_policy import NEXT_STEP, ExitCode

_A = (ConditionType.Accepted,)
_W = (ConditionType.WorkloadAvailable,)
_S = (ConditionType.Scheduled,)
_T, _F = ConditionStatus.true, ConditionStatus.false

# fmt: off
ROWS = {
    "Available": ReasonRow(_W, _T, "as many pods of the current spec serve as requested", "a pod stops serving"),
    "Starting": ReasonRow(
        _W, _F, "fewer pods of the current spec serve than requested", "enough pods serve", consequence=True
    ),
    "Suspended": ReasonRow(
        (*_W, *_S), _F, "spec.suspend is true, or spec.replicas is 0 without autoscaling",
        "the spec requests pods again",
        "set spec.suspend: false and spec.replicas to 1 or more", notice=Notice.Normal,
    ),
    "PreviousDraining": ReasonRow(
        (*_W, *_S), _F, "a new pod waits for the GPUs, or other room, of a pod of the same service that is being "
        "deleted; a rollout with the strategy Replace does that", "the deleted pod has gone and the new one has a node",
        "wait: it drains for spec.rollout.drainSeconds at most",
    ),
    "Unschedulable": warns(
        (*_W, *_S), _F, "the scheduler finds no node for a pod, and no pod of the service that it could wait for is "
        "being deleted", "the pod is scheduled",
        "free or add a node, or lower spec.resources, or relax spec.placement; for what is free: kubectl describe "
        "nodes",
    ),
    "GroupUnschedulable": warns(
        (*_W, *_S), _F, "the scheduler finds no node for a pod of a group; the other pods of the group keep what they "
        "have, and wait", "the pod is scheduled",
        "free or add nodes, or relax spec.placement; if groups wait for each other: "
        "docs/how-to/several-nodes.md#groups-that-wait",
    ),
    "QueuedByKueue": ReasonRow(
        (*_W, *_S), _F, "Kueue holds a pod back until its queue has room", "the queue admits it",
        "free quota or use another queue; for the cause: kubectl -n NAMESPACE describe workloads.kueue.x-k8s.io",
        notice=Notice.Normal,
    ),
    "SchedulingGated": ReasonRow(
        (*_W, *_S), _F, "a scheduling gate that is not ours holds a pod back", "the gate is removed",
        "let the gate's owner remove it: kubectl -n NAMESPACE get pod POD -o jsonpath={.spec.schedulingGates}",
        notice=Notice.Normal,
    ),
    "PodsRefused": warns(
        _W, _F, "the cluster refuses to create the pods for another reason", "a pod is created",
        "fix what the message names; for details: kubectl -n NAMESPACE describe replicasets -l "
        "graphpod.dev/inferenceservice=NAME",
    ),
    "QuotaExceeded": warns(
        _W, _F, "a ResourceQuota of the namespace admits no more pods", "a pod is created",
        "raise or free the quota, or lower spec.resources or spec.replicas; see kubectl -n NAMESPACE describe "
        "resourcequota",
    ),
    "LimitRangeExceeded": stalls(
        _W, _F, "a LimitRange of the namespace does not admit spec.resources", "a pod is created",
        "set spec.resources within its limits: kubectl -n NAMESPACE describe limitrange",
    ),
    "PodSecurityRefused": stalls(
        _W, _F, "the namespace's pod-security level does not admit the pods", "a pod is created",
        "remove what it names from spec.podTemplate; graphpod's own settings pass `restricted`",
    ),
    "AdmissionRefused": warns(
        _W, _F, "an admission webhook of the cluster refuses the pods", "a pod is created",
        "change what it names; the webhooks are in kubectl get validatingwebhookconfigurations",
    ),
    "PlacementRefused": stalls(
        _W, _F, "the cluster has no PriorityClass or RuntimeClass of the name in spec.placement", "a pod is created",
        "correct that field of spec.placement, or create the class",
    ),
    "VolumeElsewhere": warns(
        (*_W, *_S), _F, "only nodes where the pod may not run, or has no room, can mount the model's volume",
        "the pod is scheduled", "free those nodes or change spec.placement, or copy the model to a volume that "
        "other nodes can mount",
    ),
    "ImagePullFailed": warns(
        _W, _F, "the engine's image cannot be pulled", "the image is pulled",
        "correct spec.engine.image, or give a registry Secret in spec.engine.imagePullSecrets",
    ),
    "ConfigInvalid": stalls(
        _W, _F, "the engine cannot read its configuration (exit code 10)", "a pod starts",
        "set spec.engine.image to an image of the operator's version, or remove it",
    ),
    "ContextTooLong": stalls(
        _W, _F, "spec.engine.maxModelLen is more than the model's positions (exit code 20)", "a pod starts",
        NEXT_STEP[ExitCode.ContextTooLong],
    ),
    "AttentionUnavailable": stalls(
        (*_A, *_W), _F, "the kernels of spec.engine.attention cannot serve this: the spec alone shows it "
        "(Accepted), or the engine found it (exit code 21)", "a pod starts",
        NEXT_STEP[ExitCode.AttentionUnavailable],
    ),
    "DtypeUnavailable": stalls(
        _W, _F, "the GPU or the model cannot use spec.engine.dtype, or FP8 weights (exit code 29)", "a pod starts",
        NEXT_STEP[ExitCode.DtypeUnavailable],
    ),
    "HostCacheInvalid": stalls(
        (*_A, *_W), _F, "spec.engine.hostCache does not fit into the pod's memory limit, or spec.engine.prefixCache is "
        "Off: the spec alone shows it (Accepted), or the engine found it (exit code 30)", "a pod starts",
        NEXT_STEP[ExitCode.HostCacheInvalid], own_step=True,
    ),
    "KvCacheTooSmall": stalls(
        _W, _F, "the KV cache cannot hold one request of maxModelLen tokens (exit code 22)", "a pod starts",
        NEXT_STEP[ExitCode.KvCacheTooSmall], own_step=True,
    ),
    "KvCacheTooLarge": stalls(
        _W, _F, "spec.engine.kvCacheMemory does not fit next to weights and graphs (exit code 23)", "a pod starts",
        NEXT_STEP[ExitCode.KvCacheTooLarge], own_step=True,
    ),
    "WeightsTooLarge": stalls(
        (*_A, *_W), _F, "the weights do not fit into the memory of the GPU or container (exit code 24), or the memory "
        "limit is less than the ranks themselves take (Accepted)", "a pod starts",
        NEXT_STEP[ExitCode.WeightsTooLarge], own_step=True,
    ),
    "GpuMissing": stalls(
        _W, _F, "the engine sees fewer GPUs than it needs (exit code 26)", "a pod starts",
        NEXT_STEP[ExitCode.GpuMissing],
    ),
    "ParallelismInvalid": stalls(
        (*_A, *_W), _F, "spec.parallelism does not match the GPUs (Accepted), or does not divide the model (exit code "
        "27)", "a pod starts", NEXT_STEP[ExitCode.ParallelismInvalid], own_step=True,
    ),
    "SettingInvalid": stalls(
        _W, _F, "a port, a file or an environment variable of the engine cannot be used (exit code 28)", "a pod starts",
        NEXT_STEP[ExitCode.SettingInvalid],
    ),
    "EngineRefused": stalls(
        _W, _F, "the engine does not have a feature the operator planned (exit code 17)", "a pod starts",
        "change the field it names, or set spec.engine.image to an image of the operator's version",
    ),
    "OutOfMemory": warns(
        _W, _F, "the engine exceeded the container's memory limit, and the kernel killed it", "the pod serves",
        "raise spec.resources.limits.memory, or lower spec.engine.maxBatch",
    ),
    "EngineDied": warns(
        _W, _F, "the engine process ended without a message (exit code 15)", "the pod serves",
        "see kubectl -n NAMESPACE logs POD --previous; if GPU memory ran out, lower spec.engine.maxBatch or "
        "maxModelLen",
    ),
    "EngineStuck": warns(
        _W, _F, "a stage of the start or the loop exceeded its limit (exit code 16)", "the pod serves",
        "see kubectl -n NAMESPACE logs POD --previous; if the node is slow, raise spec.resources",
    ),
    "RankDied": warns(
        _W, _F, "of several ranks, the process of one ended without a message (exit code 31)", "the pod serves",
        "see kubectl -n NAMESPACE logs POD --previous; if memory ran out (SIGKILL), raise "
        "spec.resources.limits.memory",
    ),
    "RankStuck": warns(
        _W, _F, "of several ranks, the process of one stands still (exit code 32)", "the pod serves",
        "see kubectl -n NAMESPACE logs POD --previous; if it recurs on the same node, check its GPUs for Xid errors, "
        "and keep the pods off it with spec.placement",
    ),
    "ProbeFailed": warns(
        _W, _F, "the kubelet stopped the engine because its startup or liveness probe failed (exit code 0)",
        "the pod serves", "if it made progress, raise spec.engine.startTimeout, else see kubectl -n NAMESPACE "
        "describe pod POD",
    ),
    "Restarting": ReasonRow(
        _W, _F, "an engine that failed runs again and has passed the point where it failed",
        "the pod serves, or fails again",
        "for the failure: kubectl -n NAMESPACE logs POD --previous", own_step=True,
    ),
    "ContainerRefused": warns(
        _W, _F, "the kubelet cannot create the container", "the container runs",
        "for the cause: kubectl -n NAMESPACE describe pod POD",
    ),
    "ReferenceNotFound": stalls(
        _W, _F, "a Secret or ConfigMap that spec.podTemplate.env names, or a key of it, does not exist",
        "the container runs", "create it, or correct spec.podTemplate.env",
    ),
    "PodNotPrepared": warns(
        _W, _F, "for over a minute a node has not mounted a pod's volumes or created its sandbox", "the container runs",
        "create what is missing: kubectl -n NAMESPACE describe pod POD",
    ),
    "RolloutStuck": stalls(
        _W, _F, "the Deployment exceeded its progressDeadlineSeconds, no start makes progress, and no pod says why",
        "a pod gets Ready", "for the cause: kubectl -n NAMESPACE describe deployments,pods -l "
        "graphpod.dev/inferenceservice=NAME",
    ),
    "CrashLoop": warns(
        _W, _F, "the engine ended with another exit code", "the pod serves",
        "see kubectl -n NAMESPACE logs POD --previous",
    ),
}

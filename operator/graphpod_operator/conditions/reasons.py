"""The reasons of conditions: one table. Status, events, docs and tests read it; no other word is ever written.

`Unknown` means that it could not be looked at, `False` that it was looked at and is not so. Ready takes over the
reason that explains most: one that nobody will mend by waiting, then one that is no mere consequence of another.
"""

from __future__ import annotations

from enum import Enum

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.row import Notice, ReasonRow
from graphpod_operator.conditions.types import ROOTS, ConditionType
from graphpod_policy import NEXT_STEP, ExitCode

_A, _M, _W, _G = ((root,) for root in ROOTS)
_R, _C = (ConditionType.Ready,), (ConditionType.Reconciling,)
_S, _V, _D = (ConditionType.Scheduled,), (ConditionType.Available,), (ConditionType.Degraded,)
_P, _E = (ConditionType.PolicyUpdateAvailable,), (ConditionType.EngineUpdateAvailable,)
_MON = (ConditionType.MonitorReady,)
_X = (ConditionType.ScalingReady,)
_RT = (ConditionType.RouteReady,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown


class Reason(Enum):
    """Every reason, by condition."""

    # Accepted
    Accepted = ReasonRow(_A, _T, "the spec has a plan and its objects are applied", "a later spec is refused")
    Paused = ReasonRow(
        _A, _T, "the annotation graphpod.dev/paused is true: only the status is written", "it is not",
        "remove the annotation graphpod.dev/paused to have changes applied again", notice=Notice.Normal,
    )  # fmt: skip
    SpecInvalid = ReasonRow(
        _A, _F, "the stored spec does not fit this operator's API, or the API server refuses the Deployment for a part "
        "that comes from spec.resources or spec.placement", "the spec is edited",
        "edit the field it names; the pods that run stay as they are", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    SpecTooLarge = ReasonRow(
        _A, _F, "the object, or one made from it, is larger or nested deeper than the operator reads: 512 KiB, and of "
        "the spec 4096 values and 32 levels", "the object is within that",
        "shorten or remove the field that the message names, or delete the object",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    FeatureNotBuilt = ReasonRow(
        _A, _F, "the spec asks for a feature this version does not have", "the field is removed or changed",
        "remove or change that field; kubectl explain inferenceservices.graphpod.dev.spec says what is built",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    PolicyRefused = ReasonRow(
        _A, _F, "a rule excludes the asked policy and graph.onUnsupported is Fail", "graph or the feature is changed",
        "choose another policy or set graph.onUnsupported: Degrade", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    NotAllowed = ReasonRow(
        _A, _F, "the spec uses a volume type, a Gateway, a hostname or an image that the operator's installer does not "
        "allow; the pods that run stay as they are", "the spec or the list is changed",
        "change that field, or ask the operator's admin to extend that list of the chart", stalled=True,
        notice=Notice.Warning,
    )  # fmt: skip
    PodTemplateInvalid = ReasonRow(
        _A, _F, "spec.podTemplate claims a name of the operator's, or the API server refuses the Deployment for a part "
        "that stands there", "spec.podTemplate is corrected",
        "correct spec.podTemplate; the pods that run stay as they are", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    NameCollision = ReasonRow(
        _A, _F, "an object of a name we need exists and is not ours; nothing is written", "that object is gone",
        "rename the InferenceService, or remove that object yourself; looked at again every minute",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    KedaMissing = ReasonRow(
        _A, _F, "spec.autoscaling.provider is KEDA, and ScaledObject is not served, or not to the operator",
        "it does; looked for every minute", "install KEDA, or set spec.autoscaling.provider: HPA",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    PrometheusUnknown = ReasonRow(
        _A, _F, "spec.autoscaling.provider is KEDA, and the operator was not told which Prometheus it is to ask",
        "the operator is told", "set the chart's value prometheusUrl, or spec.autoscaling.provider: HPA",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    ApplyRefused = ReasonRow(
        _A, _F, "the API server refused one of the objects", "the object is accepted",
        "fix what the server names; the operator retries, at most every 5 min, and what runs stays as it is",
        notice=Notice.Warning,
    )  # fmt: skip
    PreviousDeleting = ReasonRow(
        _A, _U, "objects of a deleted InferenceService of this name are still being removed", "they are gone",
        "wait for garbage collection",
    )  # fmt: skip

    # every condition below Accepted
    NotAccepted = ReasonRow(
        (*_M, *_W, *_G, *_S, *_D, *_P, *_E), _U, "Accepted is not True", "Accepted is True",
        "see the condition Accepted", consequence=True,
    )  # fmt: skip

    # ModelAvailable
    Loaded = ReasonRow(_M, _T, "a pod of the planned configuration has loaded the weights", "the configuration changes")
    Loading = ReasonRow(
        _M, _F, "a pod is loading the weights, and none has loaded them", "a pod has loaded them", consequence=True,
    )  # fmt: skip
    ModelPending = ReasonRow(_M, _U, "no pod has got as far as the weights", "a pod reports", consequence=True)
    ClaimNotFound = ReasonRow(
        (*_M, *_S), _F, "the claim in model.uri does not exist", "the claim exists",
        "create the PersistentVolumeClaim or correct spec.model.uri", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    ClaimNotBound = ReasonRow(
        (*_M, *_S), _F, "the claim in model.uri has no volume yet", "the claim is bound",
        "look at kubectl describe pvc", notice=Notice.Warning,
    )  # fmt: skip
    ModelInvalid = ReasonRow(
        _M, _F, "the engine found no weights it can read (exit code 11)", "a pod loads the weights",
        "correct the folder in spec.model.uri or its files", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    ModelUnsupported = ReasonRow(
        _M, _F, "the engine does not have the model's architecture, or something its config.json asks for (exit code "
        "25)", "a pod loads the weights", NEXT_STEP[ExitCode.ModelUnsupported], stalled=True, notice=Notice.Warning,
    )  # fmt: skip

    # WorkloadAvailable
    Available = ReasonRow(_W, _T, "as many pods of the current spec serve as asked for", "a pod stops serving")
    Starting = ReasonRow(
        _W, _F, "fewer pods of the current spec serve than asked for", "enough serve", consequence=True
    )
    Suspended = ReasonRow(
        (*_W, *_S), _F, "suspend is true, or replicas is 0 without autoscaling", "neither is so",
        "set spec.suspend: false and spec.replicas to 1 or more", notice=Notice.Normal,
    )  # fmt: skip
    Unschedulable = ReasonRow(
        (*_W, *_S), _F, "the scheduler finds no node for a pod", "the pod is scheduled",
        "free or add a node, or lower spec.resources and spec.placement", notice=Notice.Warning,
    )  # fmt: skip
    QueuedByKueue = ReasonRow(
        (*_W, *_S), _F, "Kueue holds a pod back until its queue has room", "the queue admits it",
        "look at kubectl describe workloads.kueue.x-k8s.io; free quota, or take another queue", notice=Notice.Normal,
    )  # fmt: skip
    SchedulingGated = ReasonRow(
        (*_W, *_S), _F, "a scheduling gate that is not ours holds a pod back", "the gate is removed",
        "ask who put the gate there: kubectl get pod -o jsonpath={.spec.schedulingGates}", notice=Notice.Normal,
    )  # fmt: skip
    PodsRefused = ReasonRow(
        _W, _F, "the cluster refuses to create the pods for another reason", "a pod is created",
        "fix what the message names", notice=Notice.Warning,
    )  # fmt: skip
    QuotaExceeded = ReasonRow(
        _W, _F, "a ResourceQuota of the namespace admits no more pods", "a pod is created",
        "free some of the quota or raise it, or lower spec.resources or the replicas: kubectl describe resourcequota",
        notice=Notice.Warning,
    )  # fmt: skip
    LimitRangeExceeded = ReasonRow(
        _W, _F, "a LimitRange of the namespace does not admit spec.resources", "a pod is created",
        "bring spec.resources within it: kubectl describe limitrange", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    PodSecurityRefused = ReasonRow(
        _W, _F, "the namespace's pod-security level does not admit the pods", "a pod is created",
        "take out of spec.podTemplate what it names; without that the pods pass `restricted`", stalled=True,
        notice=Notice.Warning,
    )  # fmt: skip
    AdmissionRefused = ReasonRow(
        _W, _F, "an admission webhook of the cluster refuses the pods", "a pod is created",
        "change what it names, or ask who runs that webhook", notice=Notice.Warning,
    )  # fmt: skip
    PlacementRefused = ReasonRow(
        _W, _F, "the cluster has no PriorityClass or RuntimeClass of the name in spec.placement", "a pod is created",
        "correct that field of spec.placement, or create the class", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    VolumeElsewhere = ReasonRow(
        (*_W, *_S), _F, "the model's volume can be had on nodes only where the pod may not run or has no room",
        "the pod is scheduled", "make room or lift spec.placement there, or copy the model to a volume of other nodes",
        notice=Notice.Warning,
    )  # fmt: skip
    ImagePullFailed = ReasonRow(
        _W, _F, "the engine's image cannot be pulled", "the image is pulled",
        "correct spec.engine.image or the registry's access", notice=Notice.Warning,
    )  # fmt: skip
    ConfigInvalid = ReasonRow(
        _W, _F, "the engine cannot read its configuration (exit code 10)", "a pod starts",
        "use an engine image of the operator's version", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    ContextTooLong = ReasonRow(
        _W, _F, "spec.engine.maxModelLen is more than the model's positions (exit code 20)", "a pod starts",
        NEXT_STEP[ExitCode.ContextTooLong], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    AttentionUnavailable = ReasonRow(
        (*_A, *_W), _F, "the kernels of spec.engine.attention cannot do this: the spec alone says so (Accepted), or "
        "the engine found it (exit code 21)", "a pod starts",
        NEXT_STEP[ExitCode.AttentionUnavailable], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    DtypeUnavailable = ReasonRow(
        _W, _F, "the GPU or the model cannot use the type of spec.engine.dtype (exit code 29)", "a pod starts",
        NEXT_STEP[ExitCode.DtypeUnavailable], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    KvCacheTooSmall = ReasonRow(
        _W, _F, "the KV cache cannot hold one request of maxModelLen tokens (exit code 22)", "a pod starts",
        NEXT_STEP[ExitCode.KvCacheTooSmall], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    KvCacheTooLarge = ReasonRow(
        _W, _F, "spec.engine.kvCacheMemory does not fit next to weights and graphs (exit code 23)", "a pod starts",
        NEXT_STEP[ExitCode.KvCacheTooLarge], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    WeightsTooLarge = ReasonRow(
        _W, _F, "the weights do not fit into the memory of the GPU or container (exit code 24)", "a pod starts",
        NEXT_STEP[ExitCode.WeightsTooLarge], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    GpuMissing = ReasonRow(
        _W, _F, "the engine sees fewer GPUs than it needs (exit code 26)", "a pod starts",
        NEXT_STEP[ExitCode.GpuMissing], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    ParallelismInvalid = ReasonRow(
        (*_A, *_W), _F, "spec.parallelism does not match the GPUs (Accepted), or does not divide the model (exit code "
        "27)", "a pod starts", NEXT_STEP[ExitCode.ParallelismInvalid], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    SettingInvalid = ReasonRow(
        _W, _F, "a port, a file or an environment variable of the engine cannot be used (exit code 28)", "a pod starts",
        NEXT_STEP[ExitCode.SettingInvalid], stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    EngineRefused = ReasonRow(
        _W, _F, "the engine does not have a feature the operator planned (exit code 17)", "a pod starts",
        "use an engine image of the operator's version", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    OutOfMemory = ReasonRow(
        _W, _F, "the kernel ended the engine for its memory", "the pod serves",
        "raise spec.resources.limits.memory or lower engine.maxBatch", notice=Notice.Warning,
    )  # fmt: skip
    EngineDied = ReasonRow(
        _W, _F, "the engine process ended without a word (exit code 15)", "the pod serves",
        "read kubectl logs --previous; where memory of the GPU ran out lower engine.maxBatch or engine.maxModelLen",
        notice=Notice.Warning,
    )  # fmt: skip
    EngineStuck = ReasonRow(
        _W, _F, "a stage of the start or the loop exceeded its limit (exit code 16)", "the pod serves",
        "read kubectl logs --previous; raise spec.resources if the node is slow", notice=Notice.Warning,
    )  # fmt: skip
    ProbeFailed = ReasonRow(
        _W, _F, "the kubelet stopped the engine because its startup or liveness probe failed (exit code 0)",
        "the pod serves", "if it made progress raise spec.engine.startTimeout, else see kubectl describe pod",
        notice=Notice.Warning,
    )  # fmt: skip
    Restarting = ReasonRow(
        _W, _F, "an engine that failed runs again and has got past where it failed", "the pod serves, or fails again",
        "see status.lastFailure and kubectl logs --previous",
    )  # fmt: skip
    ContainerRefused = ReasonRow(
        _W, _F, "the kubelet cannot create the container", "the container runs",
        "look at kubectl describe pod", notice=Notice.Warning,
    )  # fmt: skip
    ReferenceNotFound = ReasonRow(
        _W, _F, "a Secret or ConfigMap that spec.podTemplate.env names, or a key of it, does not exist",
        "the container runs", "create it, or correct spec.podTemplate.env", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    PodNotPrepared = ReasonRow(
        _W, _F, "a node has not mounted a pod's volumes or made its sandbox for over a minute", "the container runs",
        "create what is missing: kubectl describe pod names it", notice=Notice.Warning,
    )  # fmt: skip
    RolloutStuck = ReasonRow(
        _W, _F, "the Deployment exceeded its progressDeadlineSeconds, no start makes progress, and no pod says why",
        "a pod gets Ready", "see kubectl describe deployment and kubectl describe pod", stalled=True,
        notice=Notice.Warning,
    )  # fmt: skip
    CrashLoop = ReasonRow(
        _W, _F, "the engine ended with a code of its own", "the pod serves",
        "read kubectl logs --previous", notice=Notice.Warning,
    )  # fmt: skip

    # GraphsCaptured
    Captured = ReasonRow(
        _G, _T, "every serving pod captured and proved the planned graphs", "a pod or the plan changes"
    )
    Degraded = ReasonRow(
        (*_G, *_D), _T, "every serving pod proved its graphs, some run a weaker policy than planned",
        "the planned policy runs", "see status.graph.decisions: kubectl describe inferenceservices.graphpod.dev NAME",
        notice=Notice.Warning,
    )  # fmt: skip
    NotRequired = ReasonRow(_G, _T, "both phases are planned Disabled and the pods run that", "the plan has graphs")
    CapturePending = ReasonRow(
        _G, _U, "no pod of the planned configuration has got as far as capturing", "a pod captures", consequence=True,
    )  # fmt: skip
    Capturing = ReasonRow(_G, _F, "a pod is capturing its graphs", "every pod has captured its graphs")
    SelfChecking = ReasonRow(
        _G, _F, "a pod is comparing its graphs with uncaptured code", "every pod's self-check ended",
    )  # fmt: skip
    PreviousServing = ReasonRow(
        _G, _F, "a pod of an earlier configuration still serves", "only the planned configuration serves",
    )  # fmt: skip
    EngineUnreachable = ReasonRow(
        _G, _U, "a running pod's admin port does not answer the operator", "it answers",
        "let NetworkPolicy admit the operator's pods to port 8001 (admin); the chart's value networkPolicy makes one",
        notice=Notice.Warning,
    )  # fmt: skip
    EngineMisreports = ReasonRow(
        _G, _U, "a running pod's admin port answers no warm-up report, or that of another pod or configuration",
        "it reports what it runs", "use an engine image of this operator's version (spec.engine.image), and no other "
        "process of the pod on port 8001", notice=Notice.Warning,
    )  # fmt: skip
    PolicyUnsupported = ReasonRow(
        _G, _F, "the engine found that a policy asked for by name cannot work with this model or device, and "
        "graph.onUnsupported is Fail (exit code 18)", "a pod captures its graphs",
        "choose another policy or set graph.onUnsupported: Degrade", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    CaptureFailed = ReasonRow(
        _G, _F, "a capture failed and graph.onCaptureFailure is Fail (exit code 12)", "a pod captures its graphs",
        "set graph.onCaptureFailure: Degrade or another policy", stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    CaptureOutOfMemory = ReasonRow(
        _G, _F, "capture ran out of memory and no shorter ladder was left (exit code 13)", "a pod captures its graphs",
        "shorten graph.sizes or lower engine.maxBatch; without a GPU raise spec.resources.limits.memory",
        stalled=True, notice=Notice.Warning,
    )  # fmt: skip
    StartDied = ReasonRow(
        _G, _F, "a capture ended the engine's process, and graph.onCaptureFailure is Degrade",
        "a pod captures its graphs, by a weaker plan if it dies on", "read kubectl logs --previous; the operator "
        "retries, and after spec.graph.retries more failures uses a weaker policy", notice=Notice.Warning,
    )  # fmt: skip
    CompileFailed = ReasonRow(
        _G, _F, "a function of the model could not be compiled and graph.onCaptureFailure is Fail (exit code 19)",
        "a pod compiles it",
        "read the engine's log, set graph.onCaptureFailure: Degrade or graph.compile: None", stalled=True,
        notice=Notice.Warning,
    )  # fmt: skip
    SelfCheckFailed = ReasonRow(
        _G, _F, "a replay differed from the uncaptured code (exit code 14)", "a pod proves its graphs",
        "set graph.onCaptureFailure: Degrade or another policy, and report it", stalled=True, notice=Notice.Warning,
    )  # fmt: skip

    # Ready
    Ready = ReasonRow(_R, _T, "all conditions are True and nothing is degraded", "one is not", notice=Notice.Normal)

    # Scheduled
    Scheduled = ReasonRow(_S, _T, "every pod of the current spec has a node", "a pod waits for one")
    PodsPending = ReasonRow(
        _S, _U, "a pod of the current spec is not there yet, or the scheduler has not looked at it", "it has a node",
        consequence=True,
    )  # fmt: skip

    # Available
    Serving = ReasonRow(_V, _T, "a pod that has proved its graphs serves, of whatever generation", "none does")
    NothingServes = ReasonRow(
        _V, _F, "no pod is ready", "one is", "see the condition Ready", consequence=True,
    )  # fmt: skip
    Unproved = ReasonRow(
        _V, _U, "pods are ready, and none of them has told the operator its graphs", "one has",
        "see the condition GraphsCaptured", consequence=True,
    )  # fmt: skip

    # Degraded
    StartsDied = ReasonRow(
        _D, _T, "so many starts died in a capture (exit codes 12, 13, 14, 19) that the operator plans a weaker policy",
        "the spec, the image or the annotation graphpod.dev/adopt changes",
        "read kubectl logs --previous; to try the plan again, set the annotation graphpod.dev/adopt to another value",
        notice=Notice.Warning,
    )  # fmt: skip
    AsPlanned = ReasonRow(_D, _F, "no pod has told of a weaker policy than planned", "one has")

    # PolicyUpdateAvailable, EngineUpdateAvailable
    UpToDate = ReasonRow(
        (*_P, *_E), _F, "this operator would plan and make the same", "a newer operator would not",
    )  # fmt: skip
    NewPolicy = ReasonRow(
        _P, _T, "this operator's rules would give the engine another configuration or start budget",
        "it is adopted, or the spec changes",
        "kubectl annotate inferenceservices.graphpod.dev NAME --overwrite graphpod.dev/adopt=REVISION",
    )  # fmt: skip
    RulesRefuse = ReasonRow(
        _P, _T, "this operator would refuse the spec, whose pods run on what was planned before", "the spec changes",
        "the pods keep running; fix the spec before any other change that restarts them",
    )  # fmt: skip
    NewEngine = ReasonRow(
        _E, _T, "this operator's default image or form of the pods is another", "it is adopted, or the spec changes",
        "kubectl annotate inferenceservices.graphpod.dev NAME --overwrite graphpod.dev/adopt=REVISION",
    )  # fmt: skip

    # conditions about optional kinds
    KindNotServed = ReasonRow(
        (*_MON, *_RT), _F, "the cluster does not serve the kind", "it does",
        "install its CRD; looked for again every minute", notice=Notice.Warning,
    )  # fmt: skip
    KindNotGranted = ReasonRow(
        (*_MON, *_RT), _F, "the operator may not, or is told not to, use the kind", "it may",
        "switch the kind on in the chart's value optionalKinds", notice=Notice.Warning,
    )  # fmt: skip
    NotWritten = ReasonRow(
        (*_MON, *_X, *_RT), _F, "the API server does not take the object, or not now; the pods do without it",
        "it does", "fix the field that the server names, or ask for less in the spec; the operator retries, at "
        "most every 5 min",
        notice=Notice.Warning,
    )  # fmt: skip
    MonitorMade = ReasonRow(_MON, _T, "the PodMonitor exists", "it is not wanted, or its kind goes")
    MonitorPending = ReasonRow(_MON, _U, "the PodMonitor is not there yet", "it is", "see the condition Accepted")

    # RouteReady
    RouteAccepted = ReasonRow(
        _RT, _T, "every gateway takes the route and finds the Service (Accepted and ResolvedRefs)", "one does not",
    )  # fmt: skip
    RouteShut = ReasonRow(
        _RT, _U, "every gateway takes the route, and the NetworkPolicy keeps out the pods of a Gateway's namespace, "
        "where its proxies may be", "it lets them in, or others from elsewhere",
        "add it to the chart's networkPolicy.routeNamespaces; if its proxies run elsewhere list them in gateways",
        notice=Notice.Warning,
    )  # fmt: skip
    RoutePending = ReasonRow(
        _RT, _U, "a gateway's controller has not said yet whether it takes the route in its present form", "it has",
        "is there a Gateway of that name, and does its controller run? kubectl get gateway -A",
    )  # fmt: skip
    RouteNotAllowed = ReasonRow(
        _RT, _F, "no listener of a gateway admits routes of this namespace (NotAllowedByListeners)", "one does",
        "have allowedRoutes of a listener of that Gateway admit this namespace", notice=Notice.Warning,
    )  # fmt: skip
    RouteHostnameUnmatched = ReasonRow(
        _RT, _F, "no listener of a gateway has one of the hostnames (NoMatchingListenerHostname)", "one has",
        "name a host of that Gateway's listeners in spec.networking.route.hostnames", notice=Notice.Warning,
    )  # fmt: skip
    RouteListenerUnmatched = ReasonRow(
        _RT, _F, "a gateway has no listener of that name or port (NoMatchingParent)", "it has",
        "correct sectionName and port in spec.networking.route.parentRefs", notice=Notice.Warning,
    )  # fmt: skip
    RouteUnsupported = ReasonRow(
        _RT, _F, "a gateway does not have what the route asks for (UnsupportedValue, IncompatibleFilters)",
        "the route asks for less",
        "remove spec.networking.route.pathPrefix, or set its requestTimeout: GatewayDefault", notice=Notice.Warning,
    )  # fmt: skip
    RouteRefused = ReasonRow(
        _RT, _F, "a gateway does not take the route for another reason, or does not lead to the Service", "it does",
        "look at kubectl describe httproute, which has the service's name", notice=Notice.Warning,
    )  # fmt: skip

    # ScalingReady
    Autoscaled = ReasonRow(
        _X, _T, "an autoscaler decides on the number of pods, and spec.replicas is ignored",
        "spec.autoscaling is removed, suspend is true, or the autoscaler says that it cannot",
    )  # fmt: skip
    AutoscalerPending = ReasonRow(
        _X, _U, "the autoscaler has not said yet whether it can scale", "it has", consequence=True,
    )  # fmt: skip
    AutoscalerIdle = ReasonRow(
        _X, _F, "the autoscaler says that it cannot scale; the number of pods stays as it is", "it can",
        "look at kubectl describe of the autoscaler, which has the service's name; does an adapter serve the metric?",
    )  # fmt: skip

    # an event alone
    PutBack = ReasonRow(
        (), _T, "somebody changed the Deployment, and it was put back", "told once in ten minutes",
        "change the InferenceService instead: kubectl scale gisvc/NAME; an earlier spec, applied again, takes its old "
        "ReplicaSet; kubectl rollout restart is respected", notice=Notice.Warning,
    )  # fmt: skip

    Contested = ReasonRow(
        (), _T, "somebody changes an object or the status again and again, and it is put back ever more seldom",
        "told once in ten minutes", "find out who: kubectl get -o yaml --show-managed-fields", notice=Notice.Warning,
    )  # fmt: skip

    ReplicasIgnored = ReasonRow(
        (), _T, "somebody set spec.replicas, by kubectl scale for one, while spec.autoscaling decides",
        "told once after each change", "change spec.autoscaling.min and max, or remove spec.autoscaling",
        notice=Notice.Warning,
    )  # fmt: skip

    MemoryUnreadable = ReasonRow(
        (), _T, "a ControllerRevision of the service is none that the operator made; the service goes on without it",
        "told once by each run of the operator", "delete it", notice=Notice.Warning,
    )  # fmt: skip

    ObjectSkipped = ReasonRow(
        (), _T, "an object with the service's label is larger, or nested deeper, than the operator reads, or cannot be "
        "read: nothing but its metadata counts", "told at most once in ten minutes",
        "look at it by kubectl get -o yaml, and delete it: what is the operator's is made again", notice=Notice.Warning,
    )  # fmt: skip

    # Reconciling
    Progressing = ReasonRow(_C, _T, "Ready is not True and nothing is stalled", "Ready is True, or stalled")

    @property
    def row(self) -> ReasonRow:
        """The row of the table."""
        row: ReasonRow = self.value
        return row

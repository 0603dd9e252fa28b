"""The one next step for a reason: the words of the table of reasons, and a command to copy. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import (
    FOLDER_LABEL,
    GROUP,
    OWNER_LABEL,
    PAUSED_ANNOTATION,
    PLURAL,
    RELOAD_ANNOTATION,
    SLEEP_ANNOTATION,
)
from graphpod_operator.conditions.message import own_step, step
from graphpod_operator.conditions.reasons import Reason

R = Reason
_K = "kubectl -n NAMESPACE "


def _set(path: str, value: Any) -> str:
    """The command that sets one field of the spec."""
    for key in reversed(f"spec.{path}".split(".")):
        value = {key: value}
    return f"{_K}patch gisvc NAME --type=merge -p '{json.dumps(value)}'"


WAIT = f"{_K}wait gisvc/NAME --for=condition=Ready --timeout=15m"
EDIT = f"{_K}edit gisvc NAME"
DESCRIBE = f"{_K}describe gisvc NAME"
LOGS = f"{_K}logs POD --previous"
POD = f"{_K}describe pod POD"
PODS = f"{_K}describe pods -l {OWNER_LABEL}=NAME"
CLAIMS = f"{_K}describe pvc"
DOWNLOAD = f"{_K}describe jobs,pods -l {FOLDER_LABEL}"
TRY_AGAIN = f"{_K}delete job JOB"
CHART = "helm upgrade graphpod charts/graphpod --namespace graphpod-system --reuse-values"
ADOPT = f"{_K}annotate gisvc NAME --overwrite graphpod.dev/adopt=REVISION"
UNPAUSE = f"{_K}annotate gisvc NAME {PAUSED_ANNOTATION}-"
WAKE = f"{_K}annotate gisvc NAME {SLEEP_ANNOTATION}-"
RELOAD = f"{_K}annotate gisvc NAME --overwrite {RELOAD_ANNOTATION}=again-$(date +%s)"
DEGRADE = _set("graph.onCaptureFailure", "Degrade")
HPA = _set("autoscaling.provider", "HPA")
ROUTE = f"{_K}describe httproute NAME"
GATEWAYS = "kubectl get gateways.gateway.networking.k8s.io -A"
NOTHING = ""

# fmt: off
COMMANDS: dict[Reason, str] = {
    # Accepted
    R.Accepted: NOTHING,
    R.Paused: UNPAUSE,
    R.SpecInvalid: EDIT, R.SpecTooLarge: EDIT, R.FeatureNotBuilt: EDIT, R.NotAllowed: EDIT, R.PodTemplateInvalid: EDIT,
    R.ObjectQuotaExceeded: f"{_K}describe resourcequota", R.ApplyRefused: EDIT, R.KueueRefused: EDIT,
    R.PolicyRefused: _set("graph.onUnsupported", "Degrade"),
    R.NameCollision: f"{_K}get serviceaccounts,configmaps,services,deployments,networkpolicies NAME --ignore-not-found",
    R.OwnerMissing: f"{_K}get deployments,services -l {OWNER_LABEL}=NAME -o yaml",
    R.KedaMissing: HPA,
    R.LeaderWorkerSetMissing: "kubectl get crd leaderworkersets.leaderworkerset.x-k8s.io",
    R.LeaderWorkerSetOutdated: "kubectl get crd leaderworkersets.leaderworkerset.x-k8s.io",
    R.PrometheusUnknown: f"{CHART} --set prometheusUrl=URL",
    R.ClaimOfOneNode: EDIT, R.CacheClaimImmutable: EDIT,
    R.PreviousDeleting: f"{_K}get deployments,services,configmaps,pods -l {OWNER_LABEL}=NAME",
    R.NotAccepted: DESCRIBE,
    # ModelAvailable
    R.Loaded: NOTHING, R.Loading: WAIT, R.ModelPending: WAIT,
    R.Reloaded: NOTHING, R.Reloading: WAIT, R.ReloadPending: WAIT, R.ReloadRefused: RELOAD,
    R.ClaimNotFound: f"{_K}get pvc", R.ClaimNotBound: CLAIMS,
    R.ModelInvalid: EDIT, R.ModelUnsupported: EDIT, R.SourceFailed: EDIT,
    R.Downloading: WAIT, R.CacheClaimNotFound: f"{_K}get pvc", R.DownloadPending: DOWNLOAD,
    R.DownloadFailed: f"{_K}logs job/JOB", R.DownloadNotFound: EDIT, R.DownloadUnauthorized: EDIT,
    R.DownloadGated: TRY_AGAIN, R.DownloadRateLimited: TRY_AGAIN, R.DownloadTruncated: TRY_AGAIN,
    R.DownloadChecksumMismatch: EDIT, R.DownloadChangedUnderUs: EDIT, R.DownloadNoRanges: EDIT,
    R.DownloadDiskFull: EDIT,
    R.DownloadStalled: TRY_AGAIN, R.DownloadNoWeights: EDIT, R.DownloadPickledWeights: EDIT,
    R.DownloadCodeInRepository: EDIT, R.DownloadBadArchive: EDIT, R.DownloadBadUri: EDIT,
    R.DownloadUnreachable: TRY_AGAIN, R.DownloadServerError: TRY_AGAIN, R.DownloadSecretNotForHost: TRY_AGAIN,
    R.DownloadHostNotAllowed: f"{CHART} --set-json allowed.sourceHosts=HOSTS",
    # WorkloadAvailable
    R.Available: NOTHING, R.Starting: WAIT,
    R.Suspended: _set("suspend", False),
    R.Sleeping: WAKE, R.FallingAsleep: DESCRIBE, R.SleepPaused: UNPAUSE, R.Waking: WAIT, R.WakeRefused: PODS,
    R.Asleep: WAKE, R.SleepPending: WAIT, R.SleepRefused: WAKE,
    R.PreviousDraining: WAIT, R.Unschedulable: PODS, R.GroupUnschedulable: PODS,
    R.SchedulingGated: f"{_K}get pods -l {OWNER_LABEL}=NAME -o yaml",
    R.QueuedByKueue: f"{_K}describe workloads.kueue.x-k8s.io",
    R.PodsRefused: f"{_K}describe replicasets -l {OWNER_LABEL}=NAME",
    R.QuotaExceeded: f"{_K}describe resourcequota", R.LimitRangeExceeded: f"{_K}describe limitrange",
    R.PodSecurityRefused: EDIT, R.AdmissionRefused: "kubectl get validatingwebhookconfigurations",
    R.PlacementRefused: EDIT, R.VolumeElsewhere: PODS, R.ImagePullFailed: EDIT, R.ConfigInvalid: EDIT,
    R.ContextTooLong: EDIT, R.AttentionUnavailable: _set("engine.attention", "Auto"), R.DtypeUnavailable: EDIT,
    R.HostCacheInvalid: EDIT,
    R.KvCacheTooSmall: EDIT, R.KvCacheTooLarge: EDIT, R.WeightsTooLarge: EDIT, R.GpuMissing: EDIT,
    R.ParallelismInvalid: EDIT, R.SettingInvalid: EDIT, R.EngineRefused: EDIT, R.OutOfMemory: EDIT,
    R.EngineDied: LOGS, R.EngineStuck: LOGS, R.RankDied: LOGS, R.RankStuck: LOGS, R.ProbeFailed: POD,
    R.Restarting: LOGS, R.ContainerRefused: POD,
    R.ReferenceNotFound: f"{_K}get secrets,configmaps", R.PodNotPrepared: POD,
    R.RolloutStuck: f"{_K}describe deployments,pods -l {OWNER_LABEL}=NAME", R.CrashLoop: LOGS,
    # GraphsCaptured
    R.Captured: NOTHING, R.NotRequired: NOTHING, R.Degraded: DESCRIBE,
    R.CapturePending: WAIT, R.Capturing: WAIT, R.SelfChecking: WAIT, R.PreviousServing: WAIT,
    R.EngineUnreachable: "kubectl -n NAMESPACE describe networkpolicies",
    R.EngineMisreports: EDIT, R.PolicyUnsupported: _set("graph.onUnsupported", "Degrade"),
    R.CaptureFailed: DEGRADE, R.CaptureOutOfMemory: EDIT, R.StartDied: LOGS, R.CompileFailed: DEGRADE,
    R.SelfCheckFailed: DEGRADE,
    # Ready, Scheduled, Available, Degraded
    R.Ready: NOTHING, R.Scheduled: NOTHING, R.PodsPending: WAIT, R.Serving: NOTHING,
    R.NothingServes: DESCRIBE, R.Unproved: DESCRIBE,
    R.StartsDied: f"{_K}annotate gisvc NAME --overwrite graphpod.dev/adopt=again-$(date +%s)", R.AsPlanned: NOTHING,
    # PolicyUpdateAvailable, EngineUpdateAvailable
    R.UpToDate: NOTHING, R.NewPolicy: ADOPT, R.RulesRefuse: EDIT, R.NewEngine: ADOPT,
    # conditions about optional kinds
    R.KindNotServed: "kubectl get crds",
    R.KindNotGranted: f"{CHART} --set optionalKinds.podMonitors=true,optionalKinds.httpRoutes=true",
    R.KindNotListed: "kubectl get apiservices",
    R.NotWritten: EDIT, R.MonitorPending: DESCRIBE, R.Scraped: NOTHING, R.ScrapePending: WAIT,
    R.NotScraped: "kubectl get prometheus -A -o yaml", R.ScrapeUnknown: ADOPT,
    R.RouteAccepted: NOTHING,
    R.RouteShut: f"{CHART} --set 'networkPolicy.routeNamespaces={{GATEWAYS}}'",
    R.RoutePending: GATEWAYS, R.RouteNotAllowed: GATEWAYS, R.RouteHostnameUnmatched: EDIT,
    R.RouteListenerUnmatched: EDIT, R.RouteUnsupported: EDIT, R.RouteRefused: ROUTE,
    R.AutoscalerHeld: WAKE,
    R.Autoscaled: NOTHING, R.AutoscalerPending: WAIT, R.AutoscalerIdle: f"{_K}describe hpa,scaledobjects NAME",
    # an event alone
    R.Planned: NOTHING, R.RolloutStarted: NOTHING,
    R.PutBack: EDIT, R.Contested: f"{_K}get gisvc,deployments NAME -o yaml --show-managed-fields",
    R.ChangedAtAdmission: "kubectl get mutatingwebhookconfigurations",
    R.AnnotationIgnored: f"{_K}annotate gisvc NAME --overwrite {PAUSED_ANNOTATION}=true",
    R.ReplicasIgnored: EDIT, R.MemoryUnreadable: f"{_K}get controllerrevisions -l {OWNER_LABEL}=NAME",
    R.ObjectSkipped: f"{_K}get all,configmaps,controllerrevisions -l {OWNER_LABEL}=NAME",
    # Reconciling
    R.Progressing: WAIT,
}
# fmt: on
"""For each reason the command of its step; empty where no action is needed."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do, and the command to copy; both empty where no action is needed."""

    what: str
    command: str

    @property
    def words(self) -> str:
        """What to do, without the command where that stands in it as well: a page prints it once, ready to copy."""
        lead, _, rest = self.what.partition(": kubectl ")
        written, more, after = rest.partition("; ")
        return f"{lead}{more}{after}" if rest and _form(f"kubectl {written}") == _form(self.command) else self.what


def _form(command: str) -> str:
    """A command as it is compared: a kind has a short name, and the namespace may be left out."""
    return re.sub(r" -n \S+", "", command.replace(f" {PLURAL}.{GROUP} ", " gisvc "))


def next_step(reason: Reason, namespace: str, name: str, pod: str = "", message: str = "") -> NextStep:
    """The step for a reason, with names in it; `message` is the condition's: it may name a revision, or end with a step
    and a command of its own, which are more exact than the table's.
    """
    if not COMMANDS[reason]:
        return NextStep("", "")
    own = own_step(reason, message)
    what = own or step(reason.row.todo or reason.row.step, name, pod, message, namespace)
    _, found, rest = own.partition("kubectl ")
    return NextStep(what, found + rest or step(COMMANDS[reason], name, pod, message, namespace))

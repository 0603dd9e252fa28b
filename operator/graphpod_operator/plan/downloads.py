"""The weights of a service that downloads them: the claim, the Jobs, and whether the weights are there. Pure.

A download is one Job for each (URI, version, claim), whichever services ask for it. It is created once and never
changed. Where it ends well, the claim gets an annotation that names its folder, and the Job is deleted: the annotation
alone says that weights are complete. A Job that failed stays, and with it its reason, until somebody deletes it or a
service names a Secret that has not been tried. One whose container never ran is replaced when no service names its
Secret any more, or when it waits for a node and the pods that hold its claim have left it or come to another. One of
an earlier claim of the same name is replaced once it has ended: the claim is empty.

One Job at a time uses a claim: a Job knows since its creation which folders it may not remove, so what another
download brings meanwhile would not be among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.claim import Claim, Stored
from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.job import Job
from graphpod_operator.cache.pod import PREPARED_SECONDS, Pod
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.intent.asked_downloads import Download, downloads
from graphpod_operator.intent.source_hosts import SourceHost, source_hosts
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.download_job import download_job, secret_name
from graphpod_operator.render.owner import Owner
from graphpod_operator.render.weights_claim import access_mode, fitted, weights_claim

SHARED_MODES = ("ReadWriteMany", "ReadOnlyMany")
"""Access modes with which pods of several nodes mount one claim."""
ONE_NODE = "kubernetes.io/hostname"
"""The node label by which a spec keeps its pods on one node."""
FAILURE = "Download"
"""Beginning of our reasons for a failed download: the word of the program that downloads follows."""
NEXT_STEP = ". Next step: "
"""What its message goes on with: our own step follows instead, which names the Job."""

MOST_NEAR = 32
"""Services that a Job's affinity names."""
CORRECT = "create or correct them, then: kubectl -n NAMESPACE delete job"
"""What to do about a pod that lacks something it mounts; the Job's name follows."""


class Act(Enum):
    """What is to be done about a download."""

    Nothing = auto()
    Create = auto()
    """Create its Job."""
    Replace = auto()
    """Delete a Job that failed or never ran, and create it again as it is wanted now."""
    Record = auto()
    """Write down at the claim that the folder is complete, and delete the Job."""


@dataclass(frozen=True, slots=True)
class WeightsSeen:
    """What there is of downloads in a service's namespace."""

    claims: Mapping[str, Claim | None] = field(default_factory=dict)
    """The claims that it asks for, by name; None of one that does not exist."""
    jobs: tuple[Job, ...] = ()
    pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """The pods of these Jobs by the Job's uid, the newest last."""
    in_use: frozenset[str] = frozenset()
    """Folders of the service's claim that services use."""
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The Secrets that services name for a Job, by its name; empty stands for none."""
    users: tuple[str, ...] = ()
    """The services of which pods mount the service's claim now."""
    now: str = ""
    """The time (RFC 3339); empty where nothing is to be judged by it."""


@dataclass(frozen=True, slots=True)
class PlannedDownload:
    """One download: what is to be done about it, and what is to be said while it is not complete."""

    download: Download
    act: Act
    reason: Reason
    what: str
    job: DesiredChild
    hosts: tuple[SourceHost, ...]
    """Where its Job has to go."""
    live: Job | None = None
    pod: Pod | None = None
    """The newest pod of its Job."""
    stored: Stored | None = None
    """What is on the claim, once it is complete."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a service. `claim` is the claim to create or to change; `waits` whether pods wait for them."""

    name: str
    claim: DesiredChild | None
    uid: str | None
    """Of the claim, where it exists."""
    downloads: tuple[PlannedDownload, ...]
    keep: frozenset[str]
    """Folders that stay on the claim whatever it lacks in space; others may go."""
    evicts: bool
    """Whether a download may remove other folders."""
    waits: bool = False

    @property
    def missing(self) -> PlannedDownload | None:
        """The first download that is not complete."""
        return next((one for one in self.downloads if one.stored is None), None)


def weights(owner: Owner, written: Raw, seen: WeightsSeen | None) -> Weights | Refused | None:
    """The weights of a service, or why it cannot have them; None where it downloads nothing. `written` is its spec as
    the API server has it. Without a look at the cluster (`seen` is None) the weights count as complete.
    """
    asked = downloads(owner.name, written)
    if not asked:
        return None
    known = seen or WeightsSeen()
    claim = known.claims.get(owner.claim)
    body = weights_claim(owner)
    if body is not None and claim is not None:
        if (changed := _other_class(owner, claim)) is not None:
            return Refused(Reason.CacheClaimImmutable, changed)
        body = fitted(body, claim.storage, claim.modes, claim.storage_class)
    wanted = DesiredChild.of(Resource.PersistentVolumeClaim, body) if body is not None else None
    if wanted is not None and claim is not None and claim.maker != owner.name:
        what = f"PersistentVolumeClaim {owner.namespace}/{owner.claim} exists and is not made by graphpod"
        return Refused(Reason.NameCollision, f"{what}; the operator leaves it untouched")
    if (narrow := _one_node_only(owner.spec, claim)) is not None:
        return Refused(Reason.ClaimOfOneNode, f"PersistentVolumeClaim {owner.claim} is {narrow}")
    for one in asked:
        if any(job.name == one.job and not job.ours for job in known.jobs):
            what = f"Job {owner.namespace}/{one.job} exists and is not made by graphpod"
            return Refused(Reason.NameCollision, f"{what}; the operator leaves it untouched")
    keep = known.in_use | {one.folder for one in asked}
    planned = _one_at_a_time(_planned(owner, one, claim, wanted, known, keep) for one in asked)
    return Weights(
        name=owner.claim,
        claim=wanted if wanted is not None and _differs(owner, wanted, claim) else None,
        uid=claim.child.uid if claim is not None else None,
        downloads=tuple(planned) if seen is not None else tuple(_unseen(owner, one, keep) for one in asked),
        keep=keep,
        evicts=wanted is not None,
    )


def _other_class(owner: Owner, claim: Claim) -> str | None:
    """That the spec asks for another class than its claim has, which no claim changes."""
    cache = owner.spec.model.cache
    asked = cache.storage_class_name if cache is not None else None
    if asked is None or asked == claim.storage_class or claim.maker != owner.name:
        return None
    named = f"PersistentVolumeClaim {owner.claim} has class {claim.storage_class or 'none'}"
    return f"{named}, and spec.model.cache.storageClassName is {asked}"


def _differs(owner: Owner, wanted: DesiredChild, claim: Claim | None) -> bool:
    """Whether the claim is to be applied. Its owner counts too, unless another than the service controls it."""
    if claim is None or claim.child.owned != wanted.owned:
        return True
    controller = claim.child.controller
    if controller is not None and controller.uid != owner.uid:
        return False
    return claim.goes_along != ("ownerReferences" in wanted.body["metadata"])


def _one_node_only(spec: Spec, claim: Claim | None) -> str | None:
    """The access mode that keeps the pods of a service with several on one node, where its spec does not."""
    most = (spec.replicas if spec.autoscaling is None else spec.autoscaling.max) * spec.parallelism.nodes
    if most < 2 or ONE_NODE in spec.placement.node_selector:
        return None
    cache = spec.model.cache
    if claim is not None:
        modes = claim.modes
    elif cache is not None and cache.size is not None:
        modes = (access_mode(cache.access_mode),)
    else:
        return None
    return None if set(modes).intersection(SHARED_MODES) else f"{', '.join(modes)}, and the spec allows {most} pods"


def _one_at_a_time(planned: Iterable[PlannedDownload]) -> Iterator[PlannedDownload]:
    """Of several downloads that are to begin, the first; the others wait for it."""
    first: PlannedDownload | None = None
    for one in planned:
        begins = one.act in (Act.Create, Act.Replace)
        if first is not None and begins:
            what = f"waits for Job {first.download.job}, which uses the same claim"
            yield replace(one, act=Act.Nothing, reason=Reason.DownloadPending, what=what)
            continue
        first = one if begins else first
        yield one


def _job(
    owner: Owner, download: Download, keep: frozenset[str], tried: tuple[str, ...] = (), near: tuple[str, ...] = ()
) -> DesiredChild:
    return DesiredChild.of(Resource.Job, download_job(owner, download, keep, tried, near))


def _near(claim: Claim | None, seen: WeightsSeen) -> tuple[str, ...]:
    """The services whose pods hold a claim that one node mounts."""
    if claim is None or set(claim.modes).intersection(SHARED_MODES):
        return ()
    return seen.users[:MOST_NEAR]


def _unseen(owner: Owner, download: Download, keep: frozenset[str]) -> PlannedDownload:
    done = Stored(download.uri.text)
    return PlannedDownload(download, Act.Nothing, Reason.Downloading, "", _job(owner, download, keep), (), stored=done)


def _planned(
    owner: Owner,
    download: Download,
    claim: Claim | None,
    wanted: DesiredChild | None,
    seen: WeightsSeen,
    keep: frozenset[str],
) -> PlannedDownload:
    """One download, as things stand."""
    live = next((job for job in seen.jobs if job.name == download.job), None)
    pods = seen.pods.get(live.uid, ()) if live is not None else ()
    near = _near(claim, seen)
    job = _job(owner, download, keep, _tried(live, pods) if live is not None else (), near)
    hosts = source_hosts(download.uri, "spec.model.uri", owner.spec)
    pod = next(reversed(pods), None)
    active = (one for one in seen.jobs if one.claim == download.claim and one.active)
    other = next((one for one in active if one.name != download.job), None)

    def planned(act: Act, reason: Reason, what: str, stored: Stored | None = None) -> PlannedDownload:
        return PlannedDownload(download, act, reason, what, job, hosts, live, pod, stored)

    if claim is not None and (stored := claim.stored.get(download.folder)) is not None:
        return planned(Act.Nothing, Reason.Downloading, "", stored)
    named = f"PersistentVolumeClaim {download.claim}"
    if claim is None and wanted is None:
        return planned(Act.Nothing, Reason.CacheClaimNotFound, f"{named} does not exist")
    if claim is not None and claim.child.deleting:
        return planned(Act.Nothing, Reason.CacheClaimNotFound, f"{named} is being deleted")
    if live is None:
        if other is not None:
            what = f"waits for Job {other.name}, which uses the same claim"
            return planned(Act.Nothing, Reason.DownloadPending, what)
        return planned(Act.Create, Reason.Downloading, f"Job {download.job} is being created")
    if live.deleting:
        return planned(Act.Nothing, Reason.Downloading, f"the earlier Job {live.name} is being deleted")
    again = f"Job {live.name} is created again"
    if claim is not None and live.claim_uid not in ("", claim.child.uid) and not live.active:
        act = Act.Replace if other is None else Act.Nothing
        return planned(act, Reason.Downloading, f"{again}: its {named} was another one")
    if live.complete:
        return planned(Act.Record, Reason.Downloading, f"{download.uri.text} is downloaded")
    if live.failed is None:
        asked = seen.secrets.get(download.job, frozenset()) | {secret_name(owner)}
        if other is None and _never_ran(live, pods) and live.secret not in asked:
            return planned(Act.Replace, Reason.Downloading, f"{again} with another Secret")
        if other is None and _never_ran(live, pods) and pod is not None and _misplaced(live, near, pod, seen.now):
            return planned(Act.Replace, Reason.Downloading, f"{again}: the pods with its claim are on another node")
        return planned(Act.Nothing, *_under_way(download, live, pod, seen.now))
    reason, what = _failure(live, pods)
    retry = Act.Replace if other is None and secret_name(owner) not in live.secrets else Act.Nothing
    return planned(retry, reason, f"Job {live.name}: {what}")


def _never_ran(job: Job, pods: tuple[Pod, ...]) -> bool:
    """Whether a Job that is under way has pods of which none has got as far as its container."""
    return job.active and job.attempts == 0 and bool(pods) and not any(pod.ran for pod in pods)


def _misplaced(job: Job, near: tuple[str, ...], pod: Pod, now: str) -> bool:
    """Whether a pod that cannot begin was sent to pods that are gone, or to another node than those that are there."""
    waits = pod.scheduling is not None or bool(now and (pod.unprepared_seconds(now) or 0.0) >= PREPARED_SECONDS)
    return waits and job.near != near and not set(job.near).intersection(near)


def _tried(job: Job, pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """The Secrets with which a download was tried, by its Job; one that no container ever mounted was not."""
    return tuple(name for name in job.secrets if name != job.secret or not _never_ran(job, pods))


def _under_way(download: Download, job: Job, pod: Pod | None, now: str) -> tuple[Reason, str]:
    """What is known of a Job that runs, besides what it reports itself."""
    if pod is None:
        if now and job.seconds(now) >= PREPARED_SECONDS:
            what = f"Job {job.name} exists for over a minute and has no pod"
            return Reason.DownloadPending, f"{what}: a quota, a limit or a webhook may refuse one"
        return Reason.Downloading, f"Job {job.name} has no pod yet"
    if pod.scheduling is not None:
        what = f"pod {pod.name} has no node: {_one_part(pod.scheduling)}"
        if not job.near:
            return Reason.DownloadPending, what
        held = f"{what} (it must run on the node of {', '.join(job.near)}, where ReadWriteOnce claim {job.claim} is)"
        return Reason.DownloadPending, f"{held}; make room on that node, or use a claim that is ReadWriteMany"
    if pod.waiting is not None and pod.waiting[0] not in _PREPARING:
        detail = _one_part(": ".join(filter(None, pod.waiting)))
        return Reason.DownloadPending, f"pod {pod.name} waits: {detail}"
    if now and not pod.ran and (pod.unprepared_seconds(now) or 0.0) >= PREPARED_SECONDS:
        secret = f"Secret {job.secret} and " if job.secret else ""
        what = f"for over a minute its pod is not prepared, which mounts {secret}PersistentVolumeClaim {job.claim}"
        return Reason.DownloadPending, f"{what}; {CORRECT} {job.name}"
    again = f", attempt {job.attempts + 1}" if job.attempts else ""
    return Reason.Downloading, f"{download.uri.text} is being downloaded{again}"


def _one_part(text: str) -> str:
    """Somebody else's words, none of which are taken for a next step of ours."""
    return text.replace("; ", ", ")


_PREPARING = ("ContainerCreating", "PodInitializing")
"""The kubelet's words for a container that waits as every one does: it is judged by how long."""


def _failure(job: Job, pods: tuple[Pod, ...]) -> tuple[Reason, str]:
    """Why a Job failed: what its newest pod said at its end, else what its controller says."""
    for pod in reversed(pods):
        if pod.ended is None or pod.ended.code == 0:
            continue
        report = FetchReport.read(pod.ended.message)
        if report is None:
            return Reason.DownloadFailed, f"its pod ended with exit code {pod.ended.code} ({pod.ended.reason})"
        reason = Reason.__members__.get(f"{FAILURE}{report.reason}", Reason.DownloadFailed)
        what = (report.message or reason.row.set_when).partition(NEXT_STEP)[0]
        return reason, what
    return Reason.DownloadFailed, job.failed or "it failed"

"""The writes about downloads: claims, Jobs, and what a claim says of its complete folders.

Jobs and claims belong to no single service, so whatever is written of them is looked at live first, and whoever comes
second finds it done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from graphpod_operator.api.names import CLAIM_UID_ANNOTATION, FOLDER_LABEL, STORED_PREFIX
from graphpod_operator.apply.claims import Claims
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.claim import Claim, Stored
from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.job import Job
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.install.network_access import Access
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.kube.cluster import ApiError, Cluster, Conflict
from graphpod_operator.kube.field_ownership import STORED_MANAGER
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.downloads import Act, PlannedDownload, Weights
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.download_policy import download_policy
from graphpod_operator.render.owner import Body

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DownloadWriter:
    """Carries out what `plan.weights` decided."""

    cluster: Cluster
    store: Store
    claims: Claims
    access: Access | None
    """Where downloads may go; None: everywhere, and no NetworkPolicy is made."""
    beginning: set[tuple[str, str]] = field(default_factory=set)
    """Claims (namespace, name) for which a Job is being created."""

    async def carry_out(self, found: Service, weights: Weights) -> bool | Refused:
        """Write what is to be written. Returns whether anything was, or why it may not be. Raises the port's errors."""
        namespace, wrote = found.key.namespace, False
        if weights.claim is not None:
            await self._apply_claim(weights.claim, weights.uid)
            wrote = True
        for one in weights.downloads:
            if one.act is Act.Nothing:
                if one.live is not None and one.live.active:
                    await self._guard(namespace, one, one.live.uid)
                continue
            if one.act is Act.Record:
                wrote = True
                await self._record(namespace, one)
                continue
            place = namespace, one.download.claim
            if place in self.beginning or self._is_taken(namespace, one):
                continue  # of services planned at the same moment, the other was first
            wrote = True
            self.beginning.add(place)
            try:
                if one.act is Act.Replace and one.live is not None:
                    await self._delete(one.live, one.what)
                if (stranger := await self._create(namespace, one, weights)) is not None:
                    return stranger
            finally:
                self.beginning.discard(place)
        return wrote

    def _is_taken(self, namespace: str, one: PlannedDownload) -> bool:
        """Whether another Job uses the claim by now."""
        on_claim = (job for job in self.store.jobs(namespace) if job.claim == one.download.claim)
        return any(job.active and job.name != one.download.job for job in on_claim)

    async def tidy(self, namespace: str) -> None:
        """Delete the Jobs of a namespace that no service uses. Raises the port's errors."""
        if not self._unused(namespace, self.store.services()):
            return
        # by a fresh list: a service that asks for the download may be newer than what is known
        fresh = await self.cluster.list(Resource.InferenceService, namespace, "", Service.of)
        for job in self._unused(namespace, fresh.items):
            await self._delete(job, "no service uses it")

    def _unused(self, namespace: str, services: Iterable[Service]) -> list[Job]:
        jobs = [job for job in self.store.jobs(namespace) if job.ours and not job.deleting]
        if not jobs:
            return []
        used = {
            one.job
            for service in services
            if service.key.namespace == namespace and not service.deleting
            for one in downloads(service.key.name, service.spec)
        }
        return [job for job in jobs if job.name not in used]

    async def _apply_claim(self, wanted: DesiredChild, uid: str | None) -> None:
        try:
            raw = await self.cluster.apply(wanted.resource, wanted.to_apply(uid), force=uid is not None)
        except ApiError:
            # it may have grown since it was read: the next look is at what it is then
            self.claims.forget(wanted.namespace, wanted.name)
            raise
        self.claims.take(Claim.of(raw))
        log.info("claim %s", "created" if uid is None else "changed", extra={"child": str(wanted)})

    async def _create(self, namespace: str, one: PlannedDownload, weights: Weights) -> Refused | None:
        """Create a Job that is not there by a live look, or say whose it is."""
        wanted = one.job
        if (raw := await self.cluster.get(Resource.Job, namespace, wanted.name)) is not None:
            live = Job.of(raw)
            self.store.observe(live)
            what = f"{wanted} exists and is not made by graphpod; the operator leaves it untouched"
            return None if live.ours else Refused(Reason.NameCollision, what)
        if weights.evicts:
            # folders that the Job may remove count as complete no longer: a Job finds out whether they are
            await self._write_stored(namespace, weights.name, lambda stored: _only(stored, weights.keep))
        claim = await self.claims.read(namespace, one.download.claim)
        body = _for_claim(wanted.body, claim.child.uid) if claim is not None else wanted.body
        marked = DesiredChild.of(Resource.Job, body).to_apply(None)
        made = Job.of(await self.cluster.apply(Resource.Job, marked, force=False))
        self.store.observe(made)
        log.info("download begins", extra={"child": str(wanted)})
        await self._guard(namespace, one, made.uid)
        return None

    async def _guard(self, namespace: str, one: PlannedDownload, uid: str) -> None:
        """Give a Job its NetworkPolicy. One of somebody else under its name stays."""
        kind, name = Resource.NetworkPolicy, one.download.job
        if self.access is None or self.store.child(kind, namespace, name) is not None:
            return
        body = download_policy(namespace, one.download, uid, one.hosts, self.access)
        try:
            raw = await self.cluster.apply(kind, DesiredChild.of(kind, body).to_apply(None), force=False)
        except Conflict:
            return
        self.store.observe(Child.of(kind, raw))

    async def _record(self, namespace: str, one: PlannedDownload) -> None:
        """Write down that a folder is complete, then delete the Job."""
        assert one.live is not None  # a Job that is complete
        report = await self._last_words(one.live)
        uri, folder = one.download.uri.text, one.download.folder
        commit, size = (report.commit or "", report.done) if report is not None else ("", 0)
        done = Stored(uri, commit, size, one.live.claim_uid)
        await self._write_stored(namespace, one.download.claim, lambda stored: {**stored, folder: done})
        await self._delete(one.live, "the weights are complete")

    async def _last_words(self, job: Job) -> FetchReport | None:
        """What the pod of a Job that is complete said at its end. The watch may report the pod after the Job."""
        pods = await self.cluster.list(Resource.Pod, job.namespace, f"{FOLDER_LABEL}={job.folder}", Pod.of)
        ended = (pod.ended for pod in pods.items if pod.job == job.uid and pod.ended is not None)
        return next((FetchReport.read(one.message) for one in ended if one.code == 0), None)

    async def _write_stored(
        self, namespace: str, claim: str, change: Callable[[Mapping[str, Stored]], Mapping[str, Stored]]
    ) -> None:
        """Change what a claim says of its folders, as it is now. A claim that is gone says nothing."""
        raw = await self.cluster.get(Resource.PersistentVolumeClaim, namespace, claim)
        if raw is None:
            self.claims.forget(namespace, claim)
            return
        live = Claim.of(raw)
        if (stored := change(live.stored)) == live.stored:
            self.claims.take(live)
            return
        metadata = {
            "name": claim,
            "namespace": namespace,
            "uid": live.child.uid,
            "resourceVersion": str(live.child.version),
            "annotations": {f"{STORED_PREFIX}{folder}": one.text for folder, one in sorted(stored.items())},
        }
        kind = Resource.PersistentVolumeClaim
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        self.claims.take(Claim.of(await self.cluster.apply(kind, body, force=True, manager=STORED_MANAGER)))

    async def _delete(self, job: Job, why: str) -> None:
        await self.cluster.delete(Resource.Job, job.namespace, job.name, job.uid)
        self.store.delete(job)
        log.info("Job deleted", extra={"child": f"Job {job.name}", "why": why})


def _for_claim(job: Body, uid: str) -> Body:
    """A Job that knows which claim it was created for, which is known once the claim exists."""
    metadata = job["metadata"]
    annotations = {**metadata["annotations"], CLAIM_UID_ANNOTATION: uid}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def _only(stored: Mapping[str, Stored], keep: Collection[str]) -> Mapping[str, Stored]:
    return {folder: one for folder, one in stored.items() if folder in keep}

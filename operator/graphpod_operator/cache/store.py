"""What the operator knows of the cluster: projections, fed by its own lists, by watch events and by its own writes.

Three sources report on the same object in no fixed order, so every report carries its resourceVersion and an older
one is dropped, also one from before the object's deletion. (An object that lost our label looks deleted to the watch;
with the label back, its newer version is taken in again.) A watch that was cut may miss deletions: `missing` finds
them by a fresh list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.job import Job
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import Projection
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.cluster import Conflict
from graphpod_operator.kube.resources import WORKLOADS, Resource, workload_name

Address = tuple[Resource, str, str]
"""(kind, namespace, name)."""

REMEMBERED_DELETIONS = 8192


def address(item: Projection) -> Address:
    """Where the store keeps an object."""
    if isinstance(item, Service):
        return Resource.InferenceService, item.key.namespace, item.key.name
    if isinstance(item, Child):
        return item.resource, item.namespace, item.name
    if isinstance(item, Job):
        return Resource.Job, item.namespace, item.name
    return Resource.Pod, item.namespace, item.name


def is_download(item: Projection) -> bool:
    """Whether it is a Job that downloads weights, or a pod of one."""
    return isinstance(item, Job) or (isinstance(item, Pod) and bool(item.job))


class Store:
    """Projections by address, and by the service they belong to."""

    def __init__(self) -> None:
        self._items: dict[Address, Projection] = {}
        self._of_service: dict[Key, set[Address]] = {}
        self._of_downloads: dict[str, set[Address]] = {}
        """Jobs that download weights, and their pods, by namespace."""
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self._skipped: dict[Address, str] = {}
        """Objects that break a bound, and which."""

    def observe(self, item: Projection) -> bool:
        """Take in a report. False when it is older than, or the same as, what is known."""
        if self.has(address(item), item.uid, item.version):
            return False
        self._put(item)
        return True

    def has(self, place: Address, uid: str, version: int) -> bool:
        """Whether a report of this version could tell nothing new: the same or a newer one is known."""
        return version <= self.newest(place, uid)

    def newest(self, place: Address, uid: str) -> int:
        """The newest version of which anything is known, the object's deletion included; 0 without any."""
        known = self._items.get(place)
        return max(known.version if known else 0, self._deleted.get(uid, 0))

    def delete(self, item: Projection) -> bool:
        """Take in a deletion, made at the item's version. False when the object was not known, or is known to live on:
        one that lost our label and got it back from us before the watch reported the loss.
        """
        self._deleted[item.uid] = item.version
        while len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        known = self._items.get(address(item))
        if known is None or known.uid != item.uid or known.version > item.version:
            return False
        self._drop(known)
        return True

    def forget(self, item: Projection) -> None:
        """Drop what is known, which may exist still: the same report counts again."""
        self._drop(item)

    def detect_restore(self, known: Service, live: Service) -> None:
        """Raises Conflict if a live answer has less of a service than `known`: its cluster was restored from a backup.
        Then the store has the answer.
        """
        if live.version < known.version or live.generation < known.generation:
            if self.known(known) is known:
                self.forget(known)  # it may count as newer than the answer
            self.observe(live)
            raise Conflict(409, f"{known.key} was put back from generation {known.generation} to {live.generation}")

    def missing(
        self, resource: Resource, namespace: str | None, items: Iterable[Projection], version: int
    ) -> list[Projection]:
        """What a full list of one kind, of one namespace or (None) of all, no longer has at `version`."""
        listed = {address(item) for item in items}
        return [
            item
            for place, item in self._items.items()
            if place[0] is resource
            and namespace in (None, place[1])
            and place not in listed
            and item.version <= version
        ]

    def known(self, item: Projection) -> Projection | None:
        """What is known under the address of `item`."""
        return self.at(address(item))

    def at(self, place: Address) -> Projection | None:
        """What is known under an address."""
        return self._items.get(place)

    def all(self, resource: Resource) -> list[Projection]:
        """Everything known of one kind."""
        return [item for place, item in self._items.items() if place[0] is resource]

    def service(self, key: Key) -> Service | None:
        """The InferenceService, or None when it does not exist."""
        found = self._items.get((Resource.InferenceService, key.namespace, key.name))
        return found if isinstance(found, Service) else None

    def services(self) -> Iterator[Service]:
        """Every InferenceService."""
        return (item for item in self._items.values() if isinstance(item, Service))

    def skipped(self, key: Key) -> list[str]:
        """The objects of a service that break a bound, and which, in words."""
        places = sorted(self._of_service.get(key, set()).intersection(self._skipped), key=lambda place: place[2])
        return [
            f"{place[0].kind} {place[2]}: {self._skipped[place]}"
            for place in places
            if place[0] is not Resource.InferenceService
        ]

    def all_skipped(self) -> tuple[Address, ...]:
        """Every object that breaks a bound."""
        return tuple(self._skipped)

    def child(self, resource: Resource, namespace: str, name: str) -> Child | None:
        """One child by name, whoever owns it."""
        found = self._items.get((resource, namespace, name))
        return found if isinstance(found, Child) else None

    def workloads(self, key: Key) -> tuple[Child, ...]:
        """What makes, or made, the pods of a service: by name, whoever owns it."""
        found = (self.child(kind, key.namespace, workload_name(kind, key.name)) for kind in WORKLOADS)
        return tuple(filter(None, found))

    def children(self, key: Key, resource: Resource) -> tuple[Child, ...]:
        """The children of one kind that carry the service's label, by name."""
        found = (item for place in self._of_service.get(key, ()) if isinstance(item := self._items[place], Child))
        return tuple(sorted((child for child in found if child.resource is resource), key=lambda child: child.name))

    def pods(self, key: Key) -> tuple[Pod, ...]:
        """The pods of a service, by name."""
        places = self._of_service.get(key, ())
        found = (item for place in places if isinstance(item := self._items[place], Pod))
        return tuple(sorted(found, key=lambda pod: pod.name))

    def jobs(self, namespace: str) -> tuple[Job, ...]:
        """The Jobs that download weights in a namespace, by name."""
        places = self._of_downloads.get(namespace, ())
        found = (item for place in places if isinstance(item := self._items[place], Job))
        return tuple(sorted(found, key=lambda job: job.name))

    def job_pods(self, job: Job) -> tuple[Pod, ...]:
        """The pods of a Job, the newest last."""
        places = self._of_downloads.get(job.namespace, ())
        found = (item for place in places if isinstance(item := self._items[place], Pod))
        return tuple(sorted((pod for pod in found if pod.job == job.uid), key=lambda pod: pod.version))

    def _put(self, item: Projection) -> None:
        place = address(item)
        if (known := self._items.get(place)) is not None:
            self._drop(known)
        self._items[place] = item
        if item.breach is not None:
            self._skipped[place] = item.breach
        if item.key is not None:
            self._of_service.setdefault(item.key, set()).add(place)
        if is_download(item):
            self._of_downloads.setdefault(place[1], set()).add(place)

    def _drop(self, item: Projection) -> None:
        place = address(item)
        del self._items[place]
        self._skipped.pop(place, None)
        if item.key is not None and (places := self._of_service.get(item.key)) is not None:
            places.discard(place)
            if not places:
                del self._of_service[item.key]
        if is_download(item):
            self._of_downloads[place[1]].discard(place)

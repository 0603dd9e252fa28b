"""What the cluster and the pods say of a service, at the moment it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.port import ApiError
from graphpod_operator.kube.resources import AUTOSCALERS, OPTIONAL, Resource
from graphpod_operator.observe.observed import Observed
from graphpod_operator.observe.reading import NoReading
from graphpod_operator.observe.warmups import Warmups
from graphpod_operator.telemetry.metrics import Meters


class Observer:
    """Reads the pods' warm-ups, and the store after that."""

    def __init__(self, warmups: Warmups, store: Store, meters: Meters) -> None:
        self._warmups = warmups
        self._store = store
        self._meters = meters
        self._reread: set[Key] = set()

    def reread(self, keys: Iterable[Key]) -> None:
        """Ask the pods of these services again at their next reconcile, also those whose warm-up has ended."""
        self._reread.update(keys)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._reread.discard(key)

    async def observe(self, key: Key, held_up: Mapping[Resource, ApiError]) -> Observed:
        """Read the pods, and report what is then. `held_up` are the kinds that could not be written."""
        again = key in self._reread
        self._reread.discard(key)
        readings = await self._warmups.read(self._store.pods(key), again=again)
        for answer in readings.values():
            result = answer.cause.value if isinstance(answer, NoReading) else "ok"
            self._meters.count("graphpod_operator_warmup_reads_total", result=result)
        # the pods may have changed during the reads: report on what is now
        where = key.namespace, key.name
        deployment = self._store.child(Resource.Deployment, *where)
        service = self._store.service(key)
        owner = deployment.controller if deployment is not None else None
        ours = owner is not None and service is not None and owner.uid == service.uid

        def ours_of(kind: Resource) -> Child | None:
            child = self._store.child(kind, *where)
            return child if child is not None and service is not None and is_ours(service, child) else None

        route = ours_of(Resource.HTTPRoute)
        return Observed(
            rollout=deployment.rollout if deployment is not None and ours else None,
            pods=self._store.pods(key) if ours else (),
            readings=readings,
            optional=frozenset(kind for kind in OPTIONAL if ours_of(kind)),
            autoscaler=next(filter(None, map(ours_of, AUTOSCALERS)), None),
            route=route.route if route is not None else None,
            held_up={kind: str(error) for kind, error in held_up.items()},
        )

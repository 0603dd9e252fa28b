"""The Secrets that services name for their downloads. Pure, over the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from graphpod_operator.cache.store import Store
from graphpod_operator.intent.asked_downloads import downloads


def named_secrets(store: Store, namespace: str) -> Mapping[str, frozenset[str]]:
    """What the specs of a namespace name for each download, by the name of its Job; empty stands for none."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for service in store.services():
        if service.key.namespace != namespace or service.deleting:
            continue
        for one in downloads(service.key.name, service.spec):
            ref = service.spec["model"].get("secretRef")
            name = ref.get("name") if isinstance(ref, Mapping) else ""
            found[one.job].add(name if isinstance(name, str) else "")
    return {job: frozenset(names) for job, names in found.items()}

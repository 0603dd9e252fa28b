"""The claim that a service has created for its downloads."""

from __future__ import annotations

from collections.abc import Sequence

from graphpod_operator.api import quantity
from graphpod_operator.api.model import AccessMode
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner


def weights_claim(owner: Owner) -> Body | None:
    """The claim of a spec with model.cache.size, else None. Without an owner, it stays when the service is deleted."""
    cache = owner.spec.model.cache
    if cache is None or cache.size is None:
        return None
    body = owner.child(
        Resource.PersistentVolumeClaim,
        owner.claim,
        spec={
            "accessModes": [access_mode(cache.access_mode)],
            "resources": {"requests": {"storage": quantity.canonical(cache.size)}},
            **({"storageClassName": cache.storage_class_name} if cache.storage_class_name is not None else {}),
        },
    )
    if cache.retain:
        del body["metadata"]["ownerReferences"]
    return body


def fitted(body: Body, storage: str | None, modes: Sequence[str], storage_class: str | None) -> Body:
    """The body for a claim that exists, with what it asks for now: no claim shrinks, and none changes its modes or its
    class.
    """
    spec = body["spec"]
    larger = storage is not None and _at_least(storage, spec["resources"]["requests"]["storage"])
    resources = {"requests": {"storage": storage}} if larger else spec["resources"]
    fixed = {"storageClassName": storage_class} if storage_class is not None else {}
    return {**body, "spec": {**spec, "accessModes": [*modes] or spec["accessModes"], "resources": resources, **fixed}}


def _at_least(live: str, wanted: str) -> bool:
    """Whether a live size is no smaller. One in a unit that specs have not is left as it is."""
    try:
        return quantity.value(live) >= quantity.value(wanted)
    except ValueError:
        return True


def access_mode(asked: AccessMode | None) -> str:
    """The access mode of a claim for which the spec asks for this one."""
    return (asked or AccessMode.ReadWriteOnce).value

"""What `spec.podTemplate` adds to a pod, in the server's normal form; and what a pod mounts of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphpod_operator.api import quantity
from graphpod_operator.api.pod import EnvVar, Volume, VolumeMount
from graphpod_operator.render.owner import Body


def variable(wanted: EnvVar) -> Body:
    """One environment variable."""
    if wanted.value_from is not None:
        return {"name": wanted.name, "valueFrom": _source(wanted.value_from)}
    return {"name": wanted.name} | ({"value": wanted.value} if wanted.value else {})


def volume(wanted: Volume) -> Body:
    """One volume."""
    source = dict(wanted.source)
    scratch = source.get("emptyDir")
    if isinstance(scratch, dict) and "sizeLimit" in scratch:
        source["emptyDir"] = {**scratch, "sizeLimit": _canonical(scratch["sizeLimit"])}
    return {"name": wanted.name, **source}


def mount(wanted: VolumeMount) -> Body:
    """Where the engine sees one volume."""
    body: Body = {"name": wanted.name, "mountPath": wanted.mount_path}
    if wanted.sub_path is not None:
        body["subPath"] = wanted.sub_path
    if wanted.read_only:
        body["readOnly"] = True
    return body


_SOURCES = {
    "secret": ("Secret", "secretName"),
    "configMap": ("ConfigMap", "name"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}
"""Sources of volumes that are objects of somebody else: kind, and the field with its name."""
_OURS = ("config", "source-hosts")


def mounted(volumes: Iterable[Body]) -> Iterator[tuple[str, str]]:
    """The objects that must exist before a pod with these volumes can begin, kind and name; our own ConfigMaps are not
    among them, and what is no name is for the API server to refuse.
    """
    for one in volumes:
        for source, (kind, field) in _SOURCES.items():
            asked = one.get(source)
            if not isinstance(asked, dict) or asked.get("optional") or one["name"] in _OURS:
                continue
            if isinstance(name := asked.get(field), str):
                yield kind, name


def _source(source: dict[str, Any]) -> dict[str, Any]:
    """References to the pod are atomic, so the defaults the server adds to them would count as ours."""
    field, resource = source.get("fieldRef"), source.get("resourceFieldRef")
    if isinstance(field, dict):
        return {**source, "fieldRef": {"apiVersion": "v1", **field}}
    if isinstance(resource, dict):
        divisor = resource.get("divisor", "0")
        return {**source, "resourceFieldRef": {**resource, "divisor": _canonical(divisor)}}
    return source


def _canonical(amount: object) -> object:
    """A quantity as the server writes it; anything else as it is, for the server to refuse."""
    try:
        return quantity.canonical(str(amount))
    except ValueError:
        return amount

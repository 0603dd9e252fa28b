"""`spec.podTemplate`: what a user may add to the operator's pods.

Keyed throughout, so that each entry has one owner: a name of ours is refused, never overridden. The sources of volumes
and of variables are passed on as written; what the API server refuses of them in the Deployment becomes
PodTemplateInvalid.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from graphpod_operator.api.base import (
    KEY_LENGTH,
    PRESERVE,
    PRUNED,
    SOURCES,
    ApiModel,
    Boolean,
    Keyed,
    LabelValue,
    Passthrough,
    Ruled,
    ValidationRule,
    one_of,
)

OWNED_PREFIX = "graphpod.dev/"
OWNED_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "pod-template-hash",
)
OWNED_ENV = ("POD_NAME", "POD_NAMESPACE", "POD_UID", "HOME", "OMP_NUM_THREADS")
GROUP_ENV = ("GRAPHPOD_LEADER", "GRAPHPOD_GROUP_KEY")
"""Variables by which the pods of a group find each other and know each other, in an engine without an operator."""
RESERVED_ENV = (*OWNED_ENV, *GROUP_ENV)
GROUP_PREFIX = "LWS_"
"""Of the variables that the controller of LeaderWorkerSets gives to pods: a pod that has one already keeps it."""
OWNED_VOLUMES = (
    "config",
    "model",
    "tmp",
    "shm",
    "cache",
    "api-key",
    "graphpod-tls",
    "model-credentials",
    "source-hosts",
)
OWNED_PATHS = (
    *("/etc/graphpod", "/etc/graphpod-api-key", "/etc/graphpod-tls"),
    *("/model", "/tmp", "/dev/shm", "/dev/termination-log"),
)
"""Names in a pod that are the operator's. A test holds them against the rendered Deployment."""
SYSTEM_PATHS = ("/bin", "/boot", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr")
"""Folders of the image's own that no volume may cover: Python and the engine are there."""

MAX_ITEMS = 32


def _overlaps(path: str) -> bool:
    """Whether a folder is one of ours, lies in one or holds one."""
    return any(f"{path}/".startswith(f"{own}/") or f"{own}/".startswith(f"{path}/") for own in OWNED_PATHS)


class EnvVar(ApiModel):
    """One environment variable of the engine."""

    RULES = (
        ValidationRule(
            "!has(self.value) || !has(self.valueFrom)",
            "a variable has either value or valueFrom",
            lambda variable: variable.value is None or variable.value_from is None,
        ),
    )

    name: Annotated[
        str,
        Ruled(
            ValidationRule(
                f"!(self in {one_of(RESERVED_ENV)}) && !self.startsWith('{GROUP_PREFIX}')",
                f"podTemplate.env: {', '.join(RESERVED_ENV)} and {GROUP_PREFIX}… are not yours to set",
                lambda name: name not in RESERVED_ENV and not name.startswith(GROUP_PREFIX),
            ),
        ),
    ] = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$",
        description="Name of the variable. Required, no default.",
    )
    value: str | None = Field(None, max_length=4096, description="Its value; $(NAME) is replaced. Default: empty.")
    value_from: Passthrough | None = Field(
        None, description="Where the value comes from, as in a pod: secretKeyRef, fieldRef, …. Default: value."
    )


class Volume(ApiModel):
    """One volume of the pods: a name, and its source as a pod has it."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"maxProperties": SOURCES, PRESERVE: True})

    name: Annotated[
        str,
        Ruled(
            ValidationRule(
                f"!(self in {one_of(OWNED_VOLUMES)})",
                f"podTemplate.volumes: {', '.join(OWNED_VOLUMES)} are the operator's",
                lambda name: name not in OWNED_VOLUMES,
            )
        ),
    ] = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Name of the volume. Required, no default.",
    )

    @model_validator(mode="after")
    def _has_few_fields(self) -> Self:
        if len(self.source) >= SOURCES:
            raise ValueError(f"a volume has at most {SOURCES} fields")
        return self

    @property
    def source(self) -> dict[str, Any]:
        """The rest of the volume, as the user wrote it."""
        return dict(self.model_extra or {})


class VolumeMount(ApiModel):
    """Where the engine sees a volume."""

    name: str = Field(min_length=1, max_length=63, description="One of podTemplate.volumes. Required, no default.")
    mount_path: Annotated[
        str,
        Ruled(
            ValidationRule(
                f"!{one_of(OWNED_PATHS)}.exists(own, (self + '/').startsWith(own + '/') || "
                "(own + '/').startsWith(self + '/'))",
                f"podTemplate.volumeMounts: must neither hold nor lie in {', '.join(OWNED_PATHS)}",
                lambda path: not _overlaps(path),
            ),
            ValidationRule(
                f"!{one_of(SYSTEM_PATHS)}.exists(own, (self + '/').startsWith(own + '/'))",
                f"podTemplate.volumeMounts: must not cover {', '.join(SYSTEM_PATHS)}, which the engine needs",
                lambda path: not f"{path}/".startswith(tuple(f"{own}/" for own in SYSTEM_PATHS)),
            ),
        ),
    ] = Field(
        max_length=512,
        pattern=r"^(/\.?[A-Za-z0-9_][-A-Za-z0-9_.]*)+$",
        description="Folder in the container. Required, no default.",
    )
    sub_path: str | None = Field(
        None, min_length=1, max_length=512, description="Folder in the volume. Default: its root."
    )
    read_only: Boolean = Field(False, description="Mount it read-only. Default: false.")


_NOT_OWNED_PREFIX = f"key.startsWith('{OWNED_PREFIX}')"

OWN_LABELS = ValidationRule(
    f"!self.exists(key, {_NOT_OWNED_PREFIX} || key in {one_of(OWNED_LABELS)})",
    f"podTemplate.labels: {OWNED_PREFIX}… and {', '.join(OWNED_LABELS)} are the operator's",
    lambda labels: not any(key.startswith(OWNED_PREFIX) or key in OWNED_LABELS for key in labels),
)
OWN_ANNOTATIONS = ValidationRule(
    f"!self.exists(key, {_NOT_OWNED_PREFIX})",
    f"podTemplate.annotations: {OWNED_PREFIX}… are the operator's",
    lambda annotations: not any(key.startswith(OWNED_PREFIX) for key in annotations),
)


class PodTemplate(ApiModel):
    """Additions to the pods: labels, annotations, environment and volumes. A change replaces the pods."""

    RULES = (
        ValidationRule(
            "!has(self.volumeMounts) || "
            "self.volumeMounts.all(m, has(self.volumes) && self.volumes.exists(v, v.name == m.name))",
            "podTemplate.volumeMounts: each must name one of podTemplate.volumes",
            lambda template: {m.name for m in template.volume_mounts} <= {v.name for v in template.volumes},
        ),
    )

    labels: Annotated[dict[str, LabelValue], Field(max_length=MAX_ITEMS), PRUNED, Ruled(KEY_LENGTH, OWN_LABELS)] = (
        Field({}, description="Labels of the pods; those of the operator are refused. Default: none.")
    )
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(max_length=MAX_ITEMS),
        PRUNED,
        SOURCES,
        Ruled(KEY_LENGTH, OWN_ANNOTATIONS),
    ] = Field({}, description="Annotations of the pods; graphpod.dev/… are refused. Default: none.")
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), Keyed("name")] = Field(
        (), description="Environment of the engine, after the operator's own variables. Default: none."
    )
    volumes: Annotated[tuple[Volume, ...], Field(max_length=MAX_ITEMS), Keyed("name")] = Field(
        (), description="Volumes of the pods: name, and a source as in a pod. Default: none."
    )
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=MAX_ITEMS), Keyed("mount_path")] = Field(
        (), description="Where the engine mounts these volumes. Default: none."
    )

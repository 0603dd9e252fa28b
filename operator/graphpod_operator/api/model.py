"""`spec.model`: which weights to serve, where they come from, where they are kept."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import (
    ApiModel,
    Boolean,
    Bytes,
    ObjectName,
    Ruled,
    Transition,
    ValidationRule,
    matches,
    unchanging,
)

_URI = "^(pvc|hf|s3|oci)://.+"
_PVC_URI = "^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_][-A-Za-z0-9._]*)*$"
_is_pvc_uri = matches(_PVC_URI)


def weights_uri(field: str) -> Ruled:
    """What a URI of weights under `field` must look like."""
    return Ruled(
        ValidationRule(
            f"self.matches('{_URI}')",
            f"{field} must begin with one of pvc://, hf://, s3://, oci://",
            matches(_URI),
        ),
        ValidationRule(
            f"!self.startsWith('pvc://') || self.matches('{_PVC_URI}')",
            f"{field} with pvc:// must read pvc://CLAIM/FOLDER: a claim name, then folders of letters, "
            "digits, '.', '_' and '-' that do not begin with '.' or '-'",
            lambda uri: not uri.startswith("pvc://") or _is_pvc_uri(uri),
        ),
    )


class SecretRef(ApiModel):
    """A Secret of this namespace; the operator never reads it."""

    name: ObjectName = Field(description="Name of the Secret. Required, no default.")


class AccessMode(StrEnum):
    """Kubernetes' own words."""

    ReadWriteOnce = "ReadWriteOnce"
    ReadWriteMany = "ReadWriteMany"


class Cache(ApiModel):
    """A claim that keeps downloaded weights, so that a pod starts without a download."""

    RULES = (
        ValidationRule(
            "has(self.claim) != has(self.size)",
            "model.cache needs exactly one of claim (one that exists) and size (one that is made)",
            lambda cache: (cache.claim is None) != (cache.size is None),
        ),
        ValidationRule(
            "has(self.size) || !has(self.storageClassName) && !has(self.accessMode)",
            "model.cache: storageClassName and accessMode go with size, not with a claim that exists",
            lambda cache: cache.size is not None or (cache.storage_class_name is None and cache.access_mode is None),
        ),
    )

    claim: ObjectName | None = Field(
        None,
        description="A PersistentVolumeClaim of this namespace to use. Default: the operator creates one of "
        "the given size.",
    )
    size: Bytes | None = Field(
        None, description="Size of the claim to create, in bytes (a quantity). Default: no claim."
    )
    storage_class_name: ObjectName | None = Field(
        None, description="Storage class of the created claim. Default: the cluster's."
    )
    access_mode: AccessMode | None = Field(
        None,
        description="Access mode of the created claim; several nodes need ReadWriteMany. Default: ReadWriteOnce.",
    )
    retain: Boolean = Field(
        True, description="Keep the created claim when the InferenceService is deleted. Default: true."
    )


class Model(ApiModel):
    """Which weights to serve."""

    RULES = (
        ValidationRule(
            "!has(self.cache) || !self.uri.startsWith('pvc://')",
            "spec.model.cache is for downloads: pvc:// is a claim already",
            lambda model: model.cache is None or not model.uri.startswith("pvc://"),
        ),
    )
    TRANSITIONS = (
        unchanging(
            "name", "spec.model.name cannot be changed: clients ask for the model by it; make another InferenceService"
        ),
        Transition(
            "!has(self.cache) || !has(oldSelf.cache) || "
            "has(self.cache.storageClassName) == has(oldSelf.cache.storageClassName) && "
            "(!has(self.cache.storageClassName) || self.cache.storageClassName == oldSelf.cache.storageClassName)",
            "spec.model.cache.storageClassName cannot be changed: that of a claim is fixed",
        ),
    )

    uri: Annotated[str, weights_uri("spec.model.uri")] = Field(
        min_length=7,
        max_length=512,
        description=(
            "Where the weights are: pvc://CLAIM/FOLDER (a folder in a PersistentVolumeClaim of this namespace), "
            "hf://ORG/NAME@REVISION, s3://BUCKET/PREFIX or oci://REFERENCE. Only pvc:// is built in this version. "
            "Required, no default."
        ),
    )
    name: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$",
        description="Model name clients put in their requests; fixed once set. Default: the name of the "
        "InferenceService.",
    )
    secret_ref: SecretRef | None = Field(
        None, description="Secret with the credentials of the hub or bucket; the pod mounts it. Default: none."
    )
    cache: Cache | None = Field(
        None, description="Claim that keeps downloaded weights. Default: each pod downloads its own."
    )

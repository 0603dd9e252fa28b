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
    Transition,
    ValidationRule,
    matches,
    unchanging,
)
from graphpod_operator.api.weights_uri import ARCHIVE, CLAIM, DOWNLOADED, weights_uri

STREAMED = "^(hf|s3|gs|az)://.+"
"""URIs of which ranges can be read."""


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
            "model.cache: storageClassName and accessMode go with size",
            lambda cache: cache.size is not None or (cache.storage_class_name is None and cache.access_mode is None),
        ),
    )

    claim: ObjectName | None = Field(
        None,
        description="A PersistentVolumeClaim of this namespace to use. Nothing on it is ever removed. Default: the "
        "operator creates one of the given size, NAME-weights.",
    )
    size: Bytes | None = Field(
        None,
        description="Size of the claim to create, in bytes (a quantity). Where a download does not fit, the weights "
        "used least recently are removed, never those of a service. Default: no claim.",
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
            lambda model: model.cache is None or not _lies_on_a_claim(model),
        ),
        ValidationRule(
            f"has(self.cache) || !self.uri.matches('{DOWNLOADED}') || has(self.stream) && self.stream",
            "spec.model.cache is required for downloads: set cache.size to create a claim, or cache.claim to use one",
            lambda model: model.cache is not None or model.stream or not matches(DOWNLOADED)(model.uri),
        ),
        ValidationRule(
            "!has(self.stream) || !self.stream || !has(self.cache) && "
            f"self.uri.matches('{STREAMED}') && !self.uri.endsWith('.gguf')",
            "spec.model.stream is for safetensors of hf://, s3://, gs:// and az://, without cache",
            lambda model: not model.stream or (model.cache is None and _is_streamed(model.uri)),
        ),
        ValidationRule(
            "!has(self.secretRef) || !self.uri.startsWith('pvc://')",
            "spec.model.secretRef is for downloads: pvc:// needs no credentials",
            lambda model: model.secret_ref is None or not _lies_on_a_claim(model),
        ),
        ValidationRule(
            "has(self.sha256) == self.uri.startsWith('https://')",
            "spec.model.sha256 is required with https://, and goes with no other scheme",
            lambda model: (model.sha256 is not None) == model.uri.startswith(f"{ARCHIVE}://"),
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
        min_length=1,
        max_length=512,
        description=(
            "Where the weights are: pvc://CLAIM/FOLDER (a folder in a PersistentVolumeClaim of this namespace), or a "
            "source: hf://ORG/NAME@REVISION, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, "
            "https://HOST/ARCHIVE or oci://REGISTRY/REPOSITORY:TAG. A download goes to the claim of spec.model.cache, "
            "once for all services that name the same URI and claim. Required, no default."
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
    sha256: str | None = Field(
        None,
        min_length=64,
        max_length=64,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the archive that an https:// URI names. Required with https://, else not allowed. "
        "Default: none.",
    )
    secret_ref: SecretRef | None = Field(
        None,
        description="Secret with the credentials of the hub, bucket or registry. Only the download's Job mounts it, "
        "with stream the pods. Default: none.",
    )
    cache: Cache | None = Field(
        None, description="Claim that keeps downloaded weights. Required for downloads. Default: none."
    )
    stream: Boolean = Field(
        False,
        description="Read weights from hf://, s3://, gs:// or az:// into the device at each start of each pod, without "
        "a claim. Default: false.",
    )


def _is_streamed(uri: str) -> bool:
    return matches(STREAMED)(uri) and not uri.endswith(".gguf")


def _lies_on_a_claim(model: Model) -> bool:
    return model.uri.startswith(f"{CLAIM}://")

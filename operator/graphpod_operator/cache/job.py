"""The projection of a Job that downloads weights."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from graphpod_operator.api.names import (
    CLAIM_ANNOTATION,
    CLAIM_UID_ANNOTATION,
    CREDENTIALS_VOLUME,
    FOLDER_LABEL,
    MANAGED_BY,
    NEAR_ANNOTATION,
    SECRETS_ANNOTATION,
)
from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.cache import shape, written_text
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw


@dataclass(frozen=True, slots=True)
class Job:
    """A Job by which services of a namespace get weights. It belongs to no single service: it has no owner."""

    namespace: str
    name: str
    uid: str
    version: int
    ours: bool
    """Whether the operator made it."""
    folder: str
    claim: str
    secrets: tuple[str, ...]
    """Names of the Secrets with which the download was tried; empty stands for none."""
    deleting: bool
    complete: bool
    failed: str | None
    """Why the Job's controller gave it up, in its words; None while it has not."""
    attempts: int
    """Pods of it that failed."""
    secret: str = ""
    """The Secret that its pods mount; empty for none."""
    claim_uid: str = ""
    """Of the claim that it was created for."""
    created: str = ""
    """RFC 3339; empty where it does not say so."""
    near: tuple[str, ...] = ()
    """The services on whose pods' node its pods must run."""
    breach: str | None = None
    """Which bound it breaks; nothing but its metadata was read then."""
    key: None = None

    @property
    def active(self) -> bool:
        """Whether it is under way."""
        return not self.complete and self.failed is None and not self.deleting

    def seconds(self, now: str) -> float:
        """Its age at `now` (RFC 3339); 0 where it does not say when it was made."""
        if not self.created:
            return 0.0
        return (datetime.fromisoformat(now) - datetime.fromisoformat(self.created)).total_seconds()

    @classmethod
    def of(cls, raw: Raw) -> Job:
        """The projection of a Job."""
        return shape.projected(raw, shape.Job, cls._of)

    @classmethod
    def _of(cls, raw: Raw) -> Job:
        metadata, status = raw["metadata"], raw.get("status") or {}
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        held = {row["type"]: row for row in status.get("conditions") or () if row.get("status") == "True"}
        failed = held.get("Failed")
        folder, claim = labels.get(FOLDER_LABEL, ""), annotations.get(CLAIM_ANNOTATION, "")
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            version=int(metadata["resourceVersion"]),
            ours=labels.get(MANAGED_BY[0]) == MANAGED_BY[1] and bool(folder and claim),
            folder=folder,
            claim=claim,
            secrets=_names(annotations.get(SECRETS_ANNOTATION, "")),
            deleting="deletionTimestamp" in metadata,
            complete="Complete" in held,
            failed=(failed.get("message") or failed.get("reason") or "")[:MESSAGE_MAX] if failed is not None else None,
            attempts=status.get("failed", 0),
            secret=_mounted(raw),
            claim_uid=annotations.get(CLAIM_UID_ANNOTATION, ""),
            created=metadata.get("creationTimestamp") or "",
            near=_names(annotations.get(NEAR_ANNOTATION, "")),
            breach=raw.get(bounds.BREACH),
        )


def _mounted(raw: Raw) -> str:
    pod = ((raw.get("spec") or {}).get("template") or {}).get("spec") or {}
    mounted = (one.get("secret") or {} for one in pod.get("volumes") or () if one["name"] == CREDENTIALS_VOLUME)
    name: str = next(mounted, {}).get("secretName", "")
    return name


def _names(text: str) -> tuple[str, ...]:
    return written_text.read(text, tuple[str, ...]) or ()

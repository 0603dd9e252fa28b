"""The URI under `spec.model.uri`, taken apart."""

from __future__ import annotations

from dataclasses import dataclass

MOUNT = "/model"
"""Where a claim is mounted in the pod."""


@dataclass(frozen=True, slots=True)
class ModelUri:
    """`scheme://authority/path`; of the pvc scheme, authority is the claim and path the folder in it."""

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> ModelUri:
        """The parts of `uri`, which the API server has already held against the grammar."""
        scheme, _, rest = uri.partition("://")
        authority, _, path = rest.partition("/")
        return cls(scheme, authority, path)

    def together_with(self, other: ModelUri) -> bool:
        """Whether both lie in one place: for pvc, on one claim."""
        return (self.scheme, self.authority) == (other.scheme, other.authority)

    @property
    def mounted_path(self) -> str:
        """The model's folder inside the pod."""
        return f"{MOUNT}/{self.path}".rstrip("/")

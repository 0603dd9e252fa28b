"""The URI under `spec.model.uri`, taken apart: where the weights lie in a pod."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from graphpod_operator.api.weights_uri import CLAIM

MOUNT = "/model"
"""Where a claim is mounted in the pod."""
WORDS = 40
"""Characters of a folder's name that are readable: a Job's name has them, too."""

_ENDINGS = re.compile(r"\.(tar|tgz|tar\.gz|tar\.zst)$")
_UNFIT = re.compile(r"[^a-z0-9.]+")


@dataclass(frozen=True, slots=True)
class ModelUri:
    """`scheme://authority/path`; of the pvc scheme, authority is the claim and path the folder in it. `text` is the
    whole of it, and `version` what else says which weights are meant: the checksum of an archive.
    """

    scheme: str
    authority: str
    path: str
    text: str = ""
    version: str = ""

    @classmethod
    def parse(cls, uri: str, version: str | None = None) -> ModelUri:
        """The parts of `uri`, which the API server has already held against the grammar."""
        scheme, _, rest = uri.partition("://")
        authority, _, path = rest.partition("/")
        return cls(scheme, authority, path, uri, version or "")

    @property
    def is_download(self) -> bool:
        """Whether the weights are downloaded to a claim, and do not lie on one already."""
        return self.scheme != CLAIM

    @property
    def folder(self) -> str:
        """The folder of its claim: of downloads a name that no other URI has, at most 49 characters."""
        if not self.is_download:
            return self.path
        last = (self.path or self.authority).rstrip("/").rpartition("/")[2]
        if self.scheme in ("hf", "oci"):
            last = re.split("[@:]", last)[0]
        words = _UNFIT.sub("-", _ENDINGS.sub("", last.lower()))[:WORDS].strip("-.")
        mark = hashlib.sha256(f"{self.text}\n{self.version}".encode()).hexdigest()[:8]
        return f"{words or 'model'}-{mark}"

    @property
    def mounted_path(self) -> str:
        """The model's folder inside the pod."""
        return f"{MOUNT}/{self.folder}".rstrip("/")

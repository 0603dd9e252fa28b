"""The downloads that a spec asks for: from where, to which folder of which claim, by a Job of which name. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import claim_name
from graphpod_operator.intent.model_uri import ModelUri


@dataclass(frozen=True, slots=True)
class Download:
    """One model that is downloaded. Services that ask for the same have the same folder and the same Job."""

    uri: ModelUri
    claim: str

    @property
    def folder(self) -> str:
        """The folder of the claim."""
        return self.uri.folder

    @property
    def job(self) -> str:
        """Name of its Job: a name of its own for each URI, version and claim."""
        mark = hashlib.sha256(f"{self.folder}\n{self.claim}".encode()).hexdigest()[:8]
        return f"fetch-{self.folder.rpartition('-')[0].replace('.', '-')}-{mark}"


def downloads(name: str, spec: Mapping[str, Any]) -> tuple[Download, ...]:
    """What the service `name` asks for, by its spec as the API server has it: its model, and a draft model. Nothing of
    a spec that cannot be read.
    """
    try:
        model = spec["model"]
        cache = model.get("cache")
        if cache is None:
            return ()
        claim = cache.get("claim") or claim_name(name)
        draft = ((spec.get("engine") or {}).get("speculative") or {}).get("draftModel")
        uris = [ModelUri.parse(model["uri"], model.get("sha256")), *([ModelUri.parse(draft)] if draft else ())]
        return tuple(Download(uri, claim) for uri in uris if uri.is_download)
    except (AttributeError, LookupError, TypeError):
        return ()

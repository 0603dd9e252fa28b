"""The downloads that a spec asks for: from where, to which folder of which claim, by a Job of which name. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

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


class _Cache(msgspec.Struct):
    claim: str | None = None


class _Model(msgspec.Struct):
    uri: str
    sha256: str | None = None
    cache: _Cache | None = None


class _Speculative(msgspec.Struct):
    draftModel: str | None = None


class _Engine(msgspec.Struct):
    speculative: _Speculative | None = None


class _Spec(msgspec.Struct):
    """What of a spec is read, and of which type: it is the one that is stored, which no schema may have judged."""

    model: _Model
    engine: _Engine | None = None


def downloads(name: str, spec: Mapping[str, Any]) -> tuple[Download, ...]:
    """What the service `name` asks for, by its spec as the API server has it: its model, and a draft model. Nothing of
    a spec that cannot be read.
    """
    try:
        asked = msgspec.convert(spec, _Spec)
    except msgspec.ValidationError:
        return ()
    model, speculative = asked.model, asked.engine.speculative if asked.engine is not None else None
    if model.cache is None:
        return ()
    draft = speculative.draftModel if speculative is not None else None
    uris = [ModelUri.parse(model.uri, model.sha256), *([ModelUri.parse(draft)] if draft else ())]
    claim = model.cache.claim or claim_name(name)
    return tuple(Download(uri, claim) for uri in uris if uri.is_download)

"""`serve --model DIR`: an engine configuration for a folder on this machine, resolved as the operator would."""

import json
from pathlib import Path

from graphpod_policy import EngineConfig, Features, GraphRequest, ModelConfig, Policy, not_built, resolve

DEFAULT_CONTEXT = 2048
"""Tokens, when the model allows more and nobody asked."""


class LocalError(ValueError):
    """The folder or the request cannot be served; the message says what to change."""


def local_config(
    model: Path,
    *,
    name: str | None = None,
    dtype: str = "float32",
    max_model_len: int | None = None,
    max_batch: int = 8,
    prefill: Policy = Policy.Auto,
    decode: Policy = Policy.Auto,
) -> EngineConfig:
    """The configuration; LocalError for a folder without config.json or a policy that is not built."""
    path = model / "config.json"
    try:
        positions = int(json.loads(path.read_bytes())["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(f"{path}: no model's configuration ({error}); give the folder that holds it") from error
    features = Features(
        max_model_len=min(positions, DEFAULT_CONTEXT) if max_model_len is None else max_model_len, max_batch=max_batch
    )
    request = GraphRequest(prefill=prefill, decode=decode)
    if missing := not_built(features, request):
        raise LocalError("; ".join(entry.message for entry in missing))
    return EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(name or model.resolve().name, str(model.resolve())),
        dtype=dtype,
    )

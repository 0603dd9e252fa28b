"""`serve --model DIR`: an engine configuration for a folder on this machine, resolved as the operator would."""

import json
from pathlib import Path

from graphpod_policy import EngineConfig, ExitCode, Features, GraphRequest, ModelConfig, Policy, not_built, resolve

DEFAULT_CONTEXT = 2048
"""Tokens, when the model allows more and nobody asked."""


class LocalError(ValueError):
    """The folder or the request cannot be served; the message says what to change, `code` which of them it is."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


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
    positions = _positions(model)
    features = Features(
        max_model_len=min(positions, DEFAULT_CONTEXT) if max_model_len is None else max_model_len, max_batch=max_batch
    )
    request = GraphRequest(prefill=prefill, decode=decode)
    if missing := not_built(features, request):
        raise LocalError(ExitCode.FeatureNotBuilt, "; ".join(entry.message for entry in missing))
    return EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(name or model.resolve().name, str(model.resolve())),
        dtype=dtype,
    )


def _positions(model: Path) -> int:
    """The most tokens of one sequence that the model knows."""
    path = model / "config.json"
    if not path.is_file():
        missing = "no config.json" if model.is_dir() else "no such folder"
        raise LocalError(ExitCode.ModelInvalid, f"{model}: {missing}; give the folder of a Hugging Face style model")
    try:
        config = json.loads(path.read_bytes())
        return int(config.get("text_config", config)["max_position_embeddings"])
    except KeyError as error:
        raise LocalError(ExitCode.ModelInvalid, f"{path}: field {error} is missing; copy the model again") from error
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise LocalError(
            ExitCode.ModelInvalid, f"{path}: no model's configuration ({error}); copy the model again"
        ) from error

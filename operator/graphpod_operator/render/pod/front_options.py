"""What the engine's command line says of its HTTP server: how it is seen, not how it runs a model."""

from __future__ import annotations

from graphpod_operator.api.spec import Spec


def arguments(spec: Spec) -> list[str]:
    """Of the engine's command line; nothing for a field at its default."""
    return ["--vllm-metric-names"] if spec.engine.vllm_metric_names else []

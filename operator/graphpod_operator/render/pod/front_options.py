"""What the engine's command line says of its HTTP server: how it is seen, not how it runs a model."""

from __future__ import annotations

from collections.abc import Iterator

from graphpod_operator.api.spec import Spec
from graphpod_policy import SamplingSource


def arguments(spec: Spec) -> Iterator[str]:
    """Of the engine's command line; nothing for a field at its default."""
    engine = spec.engine
    if engine.sampling_defaults is not SamplingSource.Model:
        yield from ("--sampling-defaults", engine.sampling_defaults.value)
    if engine.vllm_metric_names:
        yield "--vllm-metric-names"
    for origin in engine.cors.allow_origins if engine.cors is not None else ():
        yield from ("--cors-allow-origin", origin)
    if engine.tracing is not None:
        yield from ("--otlp-endpoint", engine.tracing.endpoint)
        yield from ("--trace-sampling-per-million", str(engine.tracing.sampling_rate_per_million))

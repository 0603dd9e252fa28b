"""What the engine's command line says of its HTTP server: how it is seen, not how it runs a model."""

from __future__ import annotations

from collections.abc import Iterator

from graphpod_operator.api import duration, quantity
from graphpod_operator.api.engine import HttpLimits
from graphpod_operator.api.spec import Spec
from graphpod_policy import SamplingSource, http_limits


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
    if engine.http_limits is not None:
        yield from _of_limits(engine.http_limits)


def _of_limits(limits: HttpLimits) -> Iterator[str]:
    for option, value, setting in (
        ("--max-body-size", quantity.whole(limits.body_size), http_limits.BODY_BYTES),
        ("--header-timeout", duration.seconds(limits.header_timeout), http_limits.HEADER_SECONDS),
        ("--body-timeout", duration.seconds(limits.body_timeout), http_limits.BODY_SECONDS),
        ("--read-timeout", duration.seconds(limits.read_timeout), http_limits.READ_SECONDS),
    ):
        if value != setting.default:
            yield from (option, f"{value:.10g}")

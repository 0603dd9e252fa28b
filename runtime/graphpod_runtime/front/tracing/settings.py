"""Whether and where spans go: by the command line, or by OpenTelemetry's environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Either switches tracing on, as everywhere where OpenTelemetry is."""
OFF = {"OTEL_SDK_DISABLED": ("true",), "OTEL_TRACES_EXPORTER": ("none",)}
PATH = "/v1/traces"
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`endpoint` is the whole URL that spans are sent to; None: the environment's. `per_million` of requests without a
    sampled parent are sampled; None: as the environment says, all of them by default.
    """

    endpoint: str | None
    per_million: int | None

    @classmethod
    def of(
        cls, endpoint: str | None, per_million: int | None, environment: Mapping[str, str]
    ) -> "TracingSettings | None":
        """What applies: `endpoint` is a base as OTEL_EXPORTER_OTLP_ENDPOINT is, and wins over the environment. None
        where nothing names a collector, or the environment says that nothing is to be sent.
        """
        if endpoint is not None:
            return cls(endpoint.rstrip("/") + PATH, per_million)
        if any(environment.get(name, "").strip().lower() in words for name, words in OFF.items()):
            return None
        if not any(environment.get(name, "").strip() for name in ENDPOINTS):
            return None
        return cls(None, per_million)

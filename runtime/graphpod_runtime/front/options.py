"""What the command line of `serve` says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphpod_policy import EngineConfig, SamplingSource
from graphpod_policy.http_limits import DEFAULT_LIMITS, HttpLimits
from graphpod_runtime.front.access.api_key import ApiKey
from graphpod_runtime.front.access.tls import Certificate


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line says. `host` None is every address, IPv4 and IPv6. `engine_command` replaces the engine
    process, for tests.
    """

    config: Path
    host: str | None = None
    http_port: int = 8000
    admin_port: int = 8001
    termination_log: Path | None = None
    accept_seconds: float | None = None
    api_key_file: Path | None = None
    engine_command: Sequence[str] | None = None
    sampling_defaults: SamplingSource = SamplingSource.Model
    vllm_metric_names: bool = False
    tls_folder: Path | None = None
    cors_origins: Sequence[str] = ()
    root_path: str | None = None
    otlp_endpoint: str | None = None
    trace_sampling_per_million: int | None = None
    limits: HttpLimits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class Checked:
    """What was read of the options' files, and found good, before a port listens."""

    config: EngineConfig
    config_hash: str
    """Of the bytes of engine.json."""
    key: ApiKey | None
    certificate: Certificate | None

"""The options of `serve` that say how the HTTP server is reached and observed."""

import argparse
import re
from pathlib import Path
from typing import Any

from graphpod_policy import SamplingSource, http_limits
from graphpod_policy.http_limits import HttpLimits, Setting
from graphpod_runtime.base.arguments import number, one_of

ORIGIN = r"\*|https?://(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?"
PREFIX = r"(/[A-Za-z0-9][-A-Za-z0-9_.]*)+"
URL = r"https?://[-A-Za-z0-9._~:\[\]@%]+(/[-A-Za-z0-9._~%/]*)?"
MILLION = 1_000_000


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Those that `http_options` reads."""
    group = parser.add_argument_group("HTTP server")
    group.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="require one of this file's keys (one a line), except for /health and /ping",
    )
    group.add_argument(
        "--tls-folder", type=Path, metavar="DIR", help="serve HTTPS with this folder's tls.crt and tls.key"
    )
    group.add_argument(
        "--cors-allow-origin",
        type=_matching(ORIGIN, "an origin such as https://chat.example.com, or *"),
        action="append",
        default=[],
        metavar="ORIGIN",
        dest="cors_origins",
        help="let web pages of this origin use the API, or of any (*); may be given several times",
    )
    group.add_argument(
        "--root-path",
        type=_matching(PREFIX, "a path such as /llama, without a slash at its end"),
        metavar="PATH",
        help="prefix that a proxy leaves before /v1",
    )
    group.add_argument(
        "--sampling-defaults",
        type=one_of(SamplingSource),
        default=SamplingSource.Model,
        metavar="SOURCE",
        help="where sampling parameters come from that a request leaves out: Model (its generation_config.json) or "
        "OpenAI; default: %(default)s",
    )
    group.add_argument("--vllm-metric-names", action="store_true", help="export metrics by vLLM's names, too")
    group.add_argument(
        "--otlp-endpoint",
        type=_matching(URL, "the base URL of a collector, such as http://otel-collector:4318"),
        metavar="URL",
        help="send traces to this collector (OTLP over HTTP); default: OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    group.add_argument(
        "--trace-sampling-per-million",
        type=number(int, 0, MILLION),
        metavar="REQUESTS",
        help="trace so many of a million requests, and those whose client asks; default: all",
    )
    for option, metavar, setting, what in (
        ("--max-body-size", "BYTES", http_limits.BODY_BYTES, "largest body of a request; the server holds up to 16"),
        ("--header-timeout", "SECONDS", http_limits.HEADER_SECONDS, "time for a request's header"),
        (
            "--body-timeout",
            "SECONDS",
            http_limits.BODY_SECONDS,
            "time between two pieces of a request's body; the whole body gets this time, and 1 s more for each "
            f"{http_limits.BODY_RATE >> 10} KiB that came",
        ),
        (
            "--read-timeout",
            "SECONDS",
            http_limits.READ_SECONDS,
            "time in which a stream's client must read; other answers have three times as long",
        ),
    ):
        group.add_argument(
            option,
            type=_within(setting, int if metavar == "BYTES" else float),
            default=setting.default,
            metavar=metavar,
            help=f"{what}; {setting.least} to {setting.most}, default: %(default)s",
        )


def http_options(options: argparse.Namespace) -> dict[str, Any]:
    """Fields of ServeOptions."""
    return {
        "api_key_file": options.api_key_file,
        "tls_folder": options.tls_folder,
        "cors_origins": tuple(options.cors_origins),
        "root_path": options.root_path,
        "sampling_defaults": options.sampling_defaults,
        "vllm_metric_names": options.vllm_metric_names,
        "otlp_endpoint": options.otlp_endpoint,
        "trace_sampling_per_million": options.trace_sampling_per_million,
        "limits": HttpLimits(options.max_body_size, options.header_timeout, options.body_timeout, options.read_timeout),
    }


def _within(setting: Setting, kind: type[int] | type[float]) -> Any:
    return number(kind, setting.least, setting.most)


def _matching(pattern: str, what: str) -> Any:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return text

    return read

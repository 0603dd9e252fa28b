"""Expositions of an engine as tests write them, and the HTTP answer around one."""

from collections.abc import Mapping


def exposition(
    replays: Mapping[str, float] | None = None,
    fallbacks: Mapping[str, float] | None = None,
    tokens: Mapping[str, float] | None = None,
    ttft: Mapping[str, float] | None = None,
    running: float = 0,
    waiting: float = 0,
    kv: float = 0,
    drafts: tuple[float, float] | None = None,
) -> bytes:
    """What /metrics of a pod answers, as far as the table needs it. `drafts`: proposed and accepted."""
    lines = ["# HELP graphpod_requests_running Requests that hold KV pages.", "# TYPE graphpod_requests_running gauge"]
    lines += [f"graphpod_requests_running {running}", f"graphpod_requests_waiting {waiting}"]
    lines += [f"graphpod_kv_cache_usage_ratio {kv}"]
    for phase, value in {"prefill": 0.0, "decode": 0.0, **(replays or {})}.items():
        lines.append(f'graphpod_graph_replays_total{{phase="{phase}",policy="Full",backend="Recorder"}} {value}')
    for reason, value in (fallbacks or {"PaddingGate": 0.0}).items():
        lines.append(f'graphpod_graph_fallbacks_total{{phase="decode",reason="{reason}",backend="Recorder"}} {value}')
    for kind, value in (tokens or {"real": 0.0, "padding": 0.0}).items():
        lines.append(f'graphpod_graph_tokens_total{{phase="decode",kind="{kind}",backend="Recorder"}} {value}')
    for bound, value in (ttft or {"0.5": 0.0, "+Inf": 0.0}).items():
        lines.append(f'graphpod_time_to_first_token_seconds_bucket{{le="{bound}",model_name="m"}} {value}')
    for word, value in zip(("proposed", "accepted"), drafts or (), strict=False):
        lines.append(f'graphpod_speculation_{word}_tokens_total{{method="Ngram"}} {value}')
    return "\n".join([*lines, "graphpod_other_total 5", ""]).encode()


def http(body: bytes) -> bytes:
    """A 200 with this body."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % len(body) + body

"""`status.engine`: how long requests may be, how many run together, how they draft, what the KV cache holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpod_operator.api.status import EngineStatus, SpeculativeStatus
from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_report import NoReading, Reading, SpeculativeRead, State
from graphpod_policy.units import count


def engine_status(
    config_hash: str | None, pods: Iterable[Pod], readings: Mapping[str, Reading | NoReading]
) -> EngineStatus | None:
    """The smallest values over the pods that run the planned configuration and whose warm-up has ended; None without
    one. Engines of before say nothing of them.
    """
    read = [
        (reading.limits, reading.kv.tokens, reading.speculative, reading.host_cache)
        for pod in pods
        if isinstance(reading := readings.get(pod.uid), Reading)
        and reading.config_hash == config_hash
        and reading.terminal
        and reading.state is State.Ready
        and not pod.deleting
        and reading.limits is not None
    ]
    if not read:
        return None
    limits = [served for served, *_ in read]
    context, batch = min(one.max_model_len for one in limits), min(one.max_batch for one in limits)
    kv_tokens = min(tokens for _, tokens, *_ in read)
    auto = {name for one in limits for name in one.auto}
    return EngineStatus(
        max_model_len=context,
        max_batch=batch,
        kv_tokens=kv_tokens,
        speculative=_least([drafts for *_, drafts, _ in read if drafts is not None]),
        host_cache_tokens=min((tier.tokens for *_, tier in read if tier is not None), default=None),
        display=display(context, batch, kv_tokens, auto),
    )


def _least(drafts: list[SpeculativeRead]) -> SpeculativeStatus | None:
    """Of pods with one configuration, and so of one method."""
    if not drafts:
        return None
    steps, batch = min(one.steps for one in drafts), min(one.max_batch for one in drafts)
    first = drafts[0]
    return SpeculativeStatus(method=first.method, draft_model=first.draft_model, steps=steps, max_batch=batch)


def display(context: int, batch: int, kv_tokens: int, auto: Iterable[str]) -> str:
    """The printer column, such as `context 40960 (Auto), batch 256 (Auto), 1.2M KV tokens`."""
    derived = dict.fromkeys(auto, " (Auto)")
    return (
        f"context {context}{derived.get('maxModelLen', '')}, batch {batch}{derived.get('maxBatch', '')}, "
        f"{count(kv_tokens)} KV tokens"
    )

"""How long and how many requests a pod would serve, and what its KV cache would hold, as far as it is known. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from graphpod_policy import Device, EngineConfig, Facts, Phase, Plan, PrefixCache, limits
from graphpod_policy.resolution.resolve import chunk_there
from graphpod_policy.start.footprint import host_page_bytes, kv_tokens
from graphpod_policy.units import as_quantity, count

SHORT_CACHE = (
    "less than one such context by this estimate, and the start may end with KvCacheTooSmall: lower "
    "spec.engine.maxModelLen"
)
"""The obstacles to a start count no graphs, and this estimate does: near the limit only the start shows which holds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens and requests. `context` None: the model's own length, which is not known."""

    context: int | None
    batch: int
    auto: tuple[str, ...]
    """Fields that each pod derives for itself."""
    kv_tokens: int | None
    """By estimate; None where model, device or free memory is not known."""
    chunk: int
    """Most tokens of one prefill pass."""
    prefix_cache: PrefixCache
    host_cache: tuple[int, int | None] | None
    host_files: tuple[str, int] | None
    """Bytes of the host KV cache, and the tokens it holds where the model is known; None: there is none."""
    prefill_budget: int | None
    """Of a pass between two decode passes; None: each pod derives it."""
    processes: int
    """That share the host KV cache of a pod."""
    ranks: int
    """Ranks of data-parallel attention, each with such a batch."""

    @classmethod
    def of(cls, config: EngineConfig, plan: Plan, final: Plan, facts: Facts, free: int | None) -> Limits:
        """As a pod would derive them. `final` is `plan` with `facts`; `config` has the type of its weights; `free` is
        what is there before the weights.
        """
        features = final.features
        chunk = chunk_there(plan, facts)
        # where none fits, an obstacle says so
        tokens = kv_tokens(replace(config, prefill_chunk=chunk), final, facts, free) or None
        known = features.max_model_len is not None or features.device is Device.Cpu or facts.model is not None
        context = limits.context(features, facts) if known else None
        if features.max_model_len is None and context is not None and tokens is not None:
            context = min(context, tokens)
        written = {"maxModelLen": features.max_model_len, "maxBatch": features.max_batch}
        return cls(
            context=context,
            batch=limits.batch(features, facts, final.phases[Phase.Decode].sizes),
            auto=tuple(name for name, value in written.items() if value is None),
            kv_tokens=tokens,
            chunk=chunk,
            prefix_cache=config.prefix_cache,
            host_cache=_host_cache(config, facts),
            host_files=_host_files(config),
            prefill_budget=config.prefill_budget,
            processes=config.features.ranks_of_node,
            ranks=features.data,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in the words of status.engine."""
        return {
            "maxModelLen": self.context,
            "maxBatch": self.batch,
            "auto": list(self.auto),
            "kvTokens": self.kv_tokens,
            "prefixCache": self.prefix_cache.value,
            "hostCache": self._host_cache_as_dict(),
            "prefillBudget": self.prefill_budget,
        }

    def _host_cache_as_dict(self) -> dict[str, Any] | None:
        if self.host_cache is None:
            return None
        size, tokens = self.host_cache
        files = self.host_files and {"file": {"path": self.host_files[0], "bytes": self.host_files[1]}}
        return {"bytes": size, "tokens": tokens, **(files or {})}

    def text(self) -> str:
        """For a person at a terminal."""
        derived = dict.fromkeys(self.auto, " (Auto)")
        context = "the model's own length" if self.context is None else f"{self.context} tokens"
        if self.kv_tokens is None and "maxModelLen" in derived:
            context += " (Auto), as far as the KV cache holds it"
        else:
            context += derived.get("maxModelLen", "")
        batch = f"{self.batch}{derived.get('maxBatch', '')}"
        if self.ranks > 1:
            batch += f" of each of {self.ranks} ranks, {self.ranks * self.batch} in all"
        return "; ".join([f"context {context}", f"batch {batch}", *self._kept(), *self._asked()])

    def _kept(self) -> Iterator[str]:
        if self.kv_tokens is not None and self.context:
            whole = self.kv_tokens // self.context
            times = {0: SHORT_CACHE, 1: "one such context"}.get(whole, f"{whole} such contexts")
            yield f"KV cache of about {count(self.kv_tokens)} tokens: {times}"

    def _asked(self) -> Iterator[str]:
        """What the spec sets and each pod would choose otherwise."""
        if self.host_cache is not None:
            amount, tokens = self.host_cache
            holds = "" if tokens is None else f" for about {count(tokens)} tokens"
            shared = "" if self.processes == 1 else f" in the pools of {self.processes} ranks"
            yield f"host KV cache of {as_quantity(amount)}{holds}{shared}, part of spec.resources.limits.memory"
        if self.host_files is not None and self.host_cache is not None:
            path, size = self.host_files
            amount, tokens = self.host_cache
            holds = "" if tokens is None else f" for about {count(tokens * size // amount)} tokens"
            yield f"files of up to {as_quantity(size)}{holds} in {path} for each pod, as long as the volume lasts"
        if self.prefill_budget is not None:
            yield f"{self.prefill_budget} prompt tokens between two decode passes"
        if self.prefix_cache is PrefixCache.Off:
            yield "no prefix cache"


def _host_files(config: EngineConfig) -> tuple[str, int] | None:
    folder, size = config.features.host_cache_folder, config.features.host_cache_file_bytes
    return None if folder is None or size is None else (folder, size)


def _host_cache(config: EngineConfig, facts: Facts) -> tuple[int, int | None] | None:
    amount = config.features.host_cache_bytes
    if amount is None:
        return None
    if facts.model is None or config.dtype is None:
        return amount, None
    return amount, amount // host_page_bytes(config, facts.model) * config.page_size

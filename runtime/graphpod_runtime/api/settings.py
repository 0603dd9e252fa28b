"""What an engine of the library is made of: a model folder and a few settings, or a whole configuration."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from graphpod_policy import EngineConfig, KvCacheDtype, Policy, Quantization, SpeculativeMethod
from graphpod_policy.limits import MOST_CONTEXT, MOST_SIZES
from graphpod_runtime.api.local_config import LocalOptions, local_config
from graphpod_runtime.base.process.openmp import bound_spinning
from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.openai.embeddings.pooler import Pooler
from graphpod_runtime.front.openai.sampling.sampling_defaults import SamplingDefaults
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.structured.check import GrammarCheck
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.report import Report

log = logging.getLogger("graphpod.engine")

MOST_WAITING = 1 << 30
"""Requests that wait in the scheduler: they are the caller's own, who holds their prompts anyway."""
WAITING_FOR_EACH = 3
"""Requests of an AsyncEngine that wait in the scheduler for each that runs; more wait in front of it."""
COUNTS = frozenset(field.name for field in fields(LocalOptions) if field.type in (int, int | None))
"""Options that are whole numbers, 1 or more."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, and what turns text into its tokens; neither needs torch."""

    config: EngineConfig
    tokenizer: Tokenizer
    defaults: SamplingDefaults
    pooler: Pooler

    @classmethod
    def of(
        cls,
        model: str | Path | None,
        config: EngineConfig | None,
        *,
        prefill: Policy | str,
        decode: Policy | str,
        prefill_sizes: Sequence[int] | None,
        decode_sizes: Sequence[int] | None,
        kv_cache_dtype: KvCacheDtype | str,
        quantization: Quantization | str | None,
        speculative: SpeculativeMethod | str | None,
        draft_model: str | Path | None,
        **options: Any,
    ) -> "Settings":
        """`options` and the others are fields of LocalOptions.

        ValueError unless exactly one of model and config is given, for a number that is none of its option, and for a
        setting that the config has already.
        LocalError, TokenizerInvalid and DefaultsInvalid say what is wrong with the folder.
        """
        if "torch" not in sys.modules:
            bound_spinning(os.environ)
        if (model is None) == (config is None):
            raise ValueError("give either model, the folder of a model, or config, an EngineConfig")
        for name in COUNTS.intersection(options):
            if options[name] is not None:
                options[name] = _count(name, options[name])
        method = None if speculative is None else SpeculativeMethod(speculative)
        given = LocalOptions(
            Path(),
            prefill=Policy(prefill),
            decode=Policy(decode),
            prefill_sizes=_ladder("prefill_sizes", prefill_sizes),
            decode_sizes=_ladder("decode_sizes", decode_sizes),
            kv_cache_dtype=KvCacheDtype(kv_cache_dtype),
            quantization=None if quantization is None else Quantization(quantization),
            speculative=method,
            draft_model=None if draft_model is None else Path(draft_model),
            **options,
        )
        if config is None:
            assert model is not None
            config = local_config(replace(given, model=Path(model)), say=log.info)
        else:
            if given != LocalOptions(Path()):
                raise ValueError("config sets all of the engine; change it by dataclasses.replace, not by arguments")
        folder = Path(config.model.path)
        config = replace(config, serving=replace(config.serving, max_queue=MOST_WAITING))
        return cls(config, Tokenizer(folder), SamplingDefaults.read(folder), Pooler.read(folder))

    def service(self, requests: OpenRequests, report: Report) -> Service:
        """The front's way from requests to answers, over an engine in this process that is Ready with `report`."""
        status = Status(self.config, "", "", report.as_dict())
        metrics, grammars = FrontMetrics(self.config.model.name), GrammarCheck(Path(self.config.model.path))
        return Service.of(status, requests, self.tokenizer, metrics, self.defaults, grammars)


def _count(name: str, value: Any, most: int | None = None) -> int:
    """`value`, which the caller has given as `name`. ValueError unless it is a whole number from 1 to `most`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        raise ValueError(f"{name}: {value!r} is not a whole number, {'1 or more' if most is None else f'1 to {most}'}")
    return int(value)


def _ladder(name: str, sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """`sizes` ascending, each once. ValueError for what the command line refuses as well."""
    if sizes is None:
        return None
    found = tuple(sorted({_count(name, size, MOST_CONTEXT) for size in sizes}))
    if not 1 <= len(found) <= MOST_SIZES:
        raise ValueError(f"{name}: {len(found)} sizes; give 1 to {MOST_SIZES}, or None for the default ladder")
    return found


def words_of(report: dict[str, Any]) -> str:
    """The policies that run, and how many of their graphs are captured."""
    backend = report["backend"]
    return ", ".join(
        f"{phase} {graph['effective']} ({backend}) {graph['sizes']['captured']}/{graph['sizes']['planned']}"
        for phase, graph in report["graph"].items()
    )

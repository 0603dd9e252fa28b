"""What an engine of the library is made of: a model folder and a few settings, or a whole configuration."""

import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graphpod_policy import Device, EngineConfig, KvCacheDtype, Policy, Quantization, SpeculativeMethod
from graphpod_policy.limits import own_ladder
from graphpod_policy.start.flags import ARGUMENTS, in_flags
from graphpod_runtime.api.local_config import AUTO, LocalOptions, local_config
from graphpod_runtime.base.failure import StartFailure
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

if TYPE_CHECKING:
    from graphpod_runtime.engine.runner import Runner

log = logging.getLogger("graphpod.engine")

MOST_WAITING = 1 << 30
"""Requests that wait in the scheduler: they are the caller's own, who holds their prompts anyway."""
WAITING_FOR_EACH = 3
"""Requests of an AsyncEngine that wait in the scheduler for each that runs; more wait in front of it."""
COUNTS = frozenset(field.name for field in fields(LocalOptions) if field.type in (int, int | None))
"""Options that are whole numbers, 1 or more."""
WORDS = {"device": (AUTO, *Device), "dtype": (AUTO, *EngineConfig.DTYPES)}
"""Options that are words, and which."""

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, and what turns text into its tokens; neither needs torch."""

    config: EngineConfig
    tokenizer: Tokenizer
    defaults: SamplingDefaults
    pooler: Pooler
    by_arguments: bool
    """Whether the caller has no spec."""

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
        for name, words in WORDS.items():
            _require(name, words, options.get(name, AUTO))
        method = None if speculative is None else _member("speculative", SpeculativeMethod, speculative)
        given = LocalOptions(
            Path(),
            prefill=_member("prefill", Policy, prefill),
            decode=_member("decode", Policy, decode),
            prefill_sizes=_ladder("prefill_sizes", prefill_sizes),
            decode_sizes=_ladder("decode_sizes", decode_sizes),
            kv_cache_dtype=_member("kv_cache_dtype", KvCacheDtype, kv_cache_dtype),
            quantization=None if quantization is None else _member("quantization", Quantization, quantization),
            speculative=method,
            draft_model=None if draft_model is None else Path(draft_model),
            **options,
        )
        by_arguments = config is None
        if config is None:
            assert model is not None
            config = local_config(replace(given, model=Path(model)), say=log.info)
        else:
            if given != LocalOptions(Path()):
                raise ValueError("config sets all of the engine; change it by dataclasses.replace, not by arguments")
        folder = Path(config.model.path)
        config = replace(config, serving=replace(config.serving, max_queue=MOST_WAITING))
        return cls(config, Tokenizer(folder), SamplingDefaults.read(folder), Pooler.read(folder), by_arguments)

    def started(self, report: Callable[[Report], None]) -> "Runner":
        """An engine in this process that is Ready; imports torch. StartFailure in the caller's own words."""
        from graphpod_runtime.engine.ranks.start import started_runner

        try:
            return started_runner(self.config, report)
        except StartFailure as failure:
            if not self.by_arguments:
                raise
            raise StartFailure(failure.code, in_flags(failure.message, ARGUMENTS)) from failure

    def service(self, requests: OpenRequests, report: Report) -> Service:
        """The front's way from requests to answers, over an engine in this process that is Ready with `report`."""
        status = Status(self.config, "", "", report.as_dict())
        metrics, grammars = FrontMetrics(self.config.model.name), GrammarCheck(Path(self.config.model.path))
        return Service.of(status, requests, self.tokenizer, metrics, self.defaults, grammars)


def _require(name: str, words: Collection[str], value: Any) -> None:
    """ValueError unless `value`, which the caller has given as `name`, is one of `words`."""
    if value not in words:
        raise ValueError(f"{name}: {value!r} is not one of {', '.join(words)}")


def _member(name: str, words: type[Word], value: str) -> Word:
    """The member that the caller has given as `name`. ValueError for any other value."""
    _require(name, list(words), value)
    return words(value)


def _count(name: str, value: Any) -> int:
    """`value`, which the caller has given as `name`. ValueError unless it is a whole number, 1 or more."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: {value!r} is not a whole number, 1 or more")
    return int(value)


def _ladder(name: str, sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """`sizes`, which the caller has given as `name`, as a ladder. ValueError for what the command line refuses, too."""
    if sizes is None:
        return None
    whole = [_count(name, size) for size in sizes]
    try:
        return own_ladder(whole)
    except ValueError as error:
        raise ValueError(f"{name}: {error}; None is the default ladder") from None


def words_of(report: dict[str, Any]) -> str:
    """The policies that run, and how many of their graphs are captured."""
    backend = report["backend"]
    return ", ".join(
        f"{phase} {graph['effective']} ({backend}) {graph['sizes']['captured']}/{graph['sizes']['planned']}"
        for phase, graph in report["graph"].items()
    )

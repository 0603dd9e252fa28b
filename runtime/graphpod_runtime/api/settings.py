"""What an engine of the library is made of: a model folder and a few settings, or a whole configuration."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphpod_policy import EngineConfig, KvCacheDtype, Policy, Quantization, SpeculativeMethod
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

        ValueError unless exactly one of model and config is given, and for a setting that the config has already.
        LocalError, TokenizerInvalid and DefaultsInvalid say what is wrong with the folder.
        """
        if "torch" not in sys.modules:
            bound_spinning(os.environ)
        if (model is None) == (config is None):
            raise ValueError("give either model, the folder of a model, or config, an EngineConfig")
        method = None if speculative is None else SpeculativeMethod(speculative)
        given = LocalOptions(
            Path(),
            prefill=Policy(prefill),
            decode=Policy(decode),
            prefill_sizes=None if prefill_sizes is None else tuple(sorted(set(prefill_sizes))),
            decode_sizes=None if decode_sizes is None else tuple(sorted(set(decode_sizes))),
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


def words_of(report: dict[str, Any]) -> str:
    """The policies that run, and how many of their graphs are captured."""
    backend = report["backend"]
    return ", ".join(
        f"{phase} {graph['effective']} ({backend}) {graph['sizes']['captured']}/{graph['sizes']['planned']}"
        for phase, graph in report["graph"].items()
    )

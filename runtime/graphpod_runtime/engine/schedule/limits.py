"""What bounds a scheduler: lengths, batches, the queue, and which of its ways are on."""

from dataclasses import dataclass, replace

from graphpod_policy import EngineConfig, PrefixCache
from graphpod_runtime.engine.schedule.drafting import Speculation


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_model_len`, `prefill_chunk`, `prefill_budget` and `page_size` are tokens, `max_batch` and `max_queue`
    sequences. `prefill_budget` is of a pass between two decode passes; None: as many as of any other.
    """

    max_model_len: int
    max_batch: int
    prefill_chunk: int
    page_size: int
    max_queue: int
    prefix_cache: bool = False
    prefill_budget: int | None = None
    speculation: Speculation | None = None
    stages: int = 1
    """Of a pipeline: as many batches may run at one time."""

    @property
    def budget_while_decoding(self) -> int:
        """Most tokens of a prefill pass between two decode passes."""
        return min(self.prefill_chunk, self.prefill_budget or self.prefill_chunk)

    @classmethod
    def of(cls, config: EngineConfig, max_queue: int) -> "Limits":
        """Those of requests that are all known: no prefix outlives them, and nothing depends on a clock."""
        context, batch = config.max_model_len, config.max_batch
        assert context is not None, "a start has derived it"
        assert batch is not None, "a start has derived it"
        speculation, asked = None, config.features
        if asked.speculative is not None:
            width = config.feature_set().verify_width
            speculation = Speculation(asked.speculative, width, asked.speculative_max_batch or batch)
            if config.feature_set().draft_trees:
                slots = (asked.speculative_steps - 1) * asked.speculative_topk + 1
                speculation = speculation._replace(deepest=asked.speculative_steps, slots=slots)
        return cls(
            context,
            batch,
            config.prefill_chunk,
            config.page_size,
            max_queue,
            speculation=speculation,
            stages=asked.pipeline,
        )

    @classmethod
    def serving(cls, config: EngineConfig) -> "Limits":
        """Those of a server. The scheduler keeps pages as long as it lives."""
        return replace(
            cls.of(config, config.serving.max_queue),
            prefix_cache=config.prefix_cache is PrefixCache.Auto,
            prefill_budget=config.prefill_budget,
        )

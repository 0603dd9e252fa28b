"""How many pages the KV cache gets, and the caches: the model's, and that of a draft model under the same pages."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from graphpod_policy import EngineConfig, Phase
from graphpod_policy.start.can_start import kv_cache_too_large, kv_cache_too_small
from graphpod_policy.start.footprint import cache_room, host_tier_bytes, most_pages, pages_of
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import ModelShape, dtype_of
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.distributed.pipeline import MOST_ON_THEIR_WAY
from graphpod_runtime.engine.start.device import Place

Made = TypeVar("Made")

logger = logging.getLogger("graphpod.engine")


def cache(
    config: EngineConfig,
    least_context: int,
    shape: ModelShape,
    place: Place,
    allocate: Callable[[int], Made],
    eager_prefill: Callable[[], object],
    decode_bytes: int,
    largest: Mapping[Phase, int],
    ranks: Ranks,
    draft_page_bytes: int = 0,
) -> Made:
    """What `allocate` makes of a number of pages, the scratch page in addition to those that sequences can own: as many
    as kvCacheMemory says; else what stays free next to the decode graphs (`decode_bytes`) and the measured peak of
    `eager_prefill`, and a margin that holds the self-check of the `largest` graphs; at most `most_pages`, at least one
    context of `least_context` tokens. What the host tier takes of the same memory goes first. `draft_page_bytes`: what
    a page has in the cache of a draft model.

    What is left is read again when the cache exists, and pages go if it is too little for graphs and peak. All `ranks`
    have the same number of pages, and so the same turns: drivers of two GPUs may take more for the same graphs.
    StartFailure when not even that fits, or not what kvCacheMemory asks for.
    """
    began = time.perf_counter()
    one_page = page_bytes(shape, config.page_size, cache_dtype(config)) + draft_page_bytes
    least, whole = (pages_of(config, tokens) for tokens in (least_context, config.max_model_len))
    reserve = place.peak_of(eager_prefill) + ranks.most(decode_bytes) + host_tier_bytes(config)
    peaked = time.perf_counter()
    if shape.stage is not None:
        # States of chunks that the next stage has not taken; the peak has one.
        chunk = config.prefill_chunk * shape.hidden * dtype_of(config.element).itemsize
        reserve += (MOST_ON_THEIR_WAY - 1) * chunk
    if config.kv_cache_bytes is not None:
        room, count = config.kv_cache_bytes, config.kv_cache_bytes // one_page
    else:
        room = cache_room(config, largest, place.available_bytes(), reserve, least, one_page)
        count = min(most_pages(config, config.max_batch, whole), room // one_page)
    while (count := ranks.least(count)) >= least:
        made = _allocated(config, allocate, count)
        missing = reserve - place.available_bytes()
        if missing <= 0:
            seconds = peaked - began, time.perf_counter() - peaked
            logger.info("KV cache sized in %.2f s = largest pass %.2f + memory %.2f", sum(seconds), *seconds)
            return made
        if config.kv_cache_bytes is not None:
            needing = f"decode graphs and a prefill chunk need {reserve}"
            raise _too_much(config, f"it leaves {reserve - missing} bytes; {needing}")
        del made
        room -= missing
        count -= -(-missing // one_page)
    raise StartFailure.by(kv_cache_too_small(config, least_context, room, one_page))


def _allocated(config: EngineConfig, allocate: Callable[[int], Made], pages: int) -> Made:
    try:
        return allocate(pages + 1)
    except torch.OutOfMemoryError as error:
        raise _too_much(config, str(error)) from error


def _too_much(config: EngineConfig, why: str) -> StartFailure:
    return StartFailure.by(kv_cache_too_large(config.kv_cache_bytes, why))

"""What a start does while weights are read, because it needs none of them.

A thread imports what compiles. Another one has libraries make their handles, and runs kernels of attention and of
sampling on a few rows: those that earlier starts compiled are loaded then. It mostly waits for the driver, as the main
thread does for a disk or the device. Triton, which both use, is imported before they part: else each might wait for a
module that the other has begun to import.

Nothing is kept but what is loaded, in the process and on the device: so a step that fails costs the time that it would
have saved. It is logged, and the start does the same again where it needs it. The threads have ended when the weights
are there: no capture, no compilation and no reading of memory finds them at work. A step that hangs ends the start.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from graphpod_policy import EngineConfig, ExitCode, ModelFacts, Phase, Quantization
from graphpod_policy.cost.selfcheck import comparisons
from graphpod_policy.start.stage_limits import FLOOR_SECONDS
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import ModelShape, dtype_of
from graphpod_runtime.cache.kv import KvCache, cache_dtype
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.compiled.jit import import_compiler
from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import attention_of
from graphpod_runtime.engine.start.rehearsal.sampling import rehearsed
from graphpod_runtime.kernels.matrix_product import FEW_ROWS, product
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.registry import computed_by_transformers

logger = logging.getLogger("graphpod.engine")

THREAD = "during-load"

Step = tuple[str, Callable[[], object]]
"""A name for the log, and what is done."""

SWITCH = 0.0005
"""Seconds after which a thread that computes gives the interpreter to one that waits for it. The main thread asks for
it after every piece of the weights, and with Python's 5 ms it would wait longer than it copies."""
ROWS = 2
"""Of what is run. Not one: many a kernel is another for one row."""
WIDTH = 64
"""Of the matrices that are multiplied."""


class Steps(NamedTuple):
    """What is done during a load."""

    first: tuple[Step, ...] = ()
    lanes: tuple[tuple[Step, ...], ...] = ()
    """A thread each, once what is first has been done."""


def steps_of(config: EngineConfig, place: Place, model: ModelFacts | None, ranks: Ranks, compiles: bool) -> Steps:
    """Those of a start of `config`, whose model is `model`; none on a CPU, which has nothing to load, and where code is
    mostly there and needs no compiler."""
    device = place.device
    if device.type != "cuda":
        return Steps()
    steps: list[Step] = [("products", lambda: multiply(dtype_of(config.element), device))]
    if model is not None and ranks.rank == 0:
        steps.append(("sampling", lambda: sample(model.vocab, config, device)))
    if ranks.count == 1:
        steps.append(("attention", lambda: attend(config, device)))
        steps.append(("every size", lambda: multiply_all(config, device)))
    kernels = tuple(steps)
    return Steps((("triton", import_triton),), ((("compiler", import_compiler),), kernels) if compiles else (kernels,))


@contextmanager
def done_during(
    steps: Steps, device: torch.device, limit: float = FLOOR_SECONDS, waits: OnProgress = ignore_progress
) -> Iterator[None]:
    """Within, threads do `steps`. They have ended when the block ends; if that raises, they do not begin another step.
    StartFailure if they work for more than `limit` seconds after the block; `waits` hears of each second of that time.
    """
    if not any(steps):
        yield
        return
    during = _During(steps, device)
    thread = threading.Thread(target=during.run, name=THREAD, daemon=True)
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(SWITCH)
        thread.start()
        try:
            yield
        except BaseException:
            during.ends.set()
            if not _ended(thread, limit, waits):
                logger.warning("during the load: %s", during.hangs(limit))
            raise
        began = time.perf_counter()
        if not _ended(thread, limit, waits):
            during.ends.set()
            raise StartFailure(ExitCode.Stuck, f"the start waits for its thread {THREAD}: {during.hangs(limit)}")
        took = ", ".join(f"{name} {seconds:.2f}" for name, seconds in during.seconds.items())
        logger.info("during the load: %s s; waited %.2f s more for it", took, time.perf_counter() - began)
    finally:
        sys.setswitchinterval(interval)


def _ended(thread: threading.Thread, limit: float, waits: OnProgress) -> bool:
    """Whether `thread` ends within `limit` seconds."""
    until = time.monotonic() + limit
    while thread.is_alive() and (left := until - time.monotonic()) > 0:
        thread.join(min(left, 1.0))
        waits()
    return not thread.is_alive()


class _During:
    """The steps of a start's threads, with their seconds."""

    def __init__(self, steps: Steps, device: torch.device) -> None:
        self._steps, self._device = steps, device
        self.ends = threading.Event()
        self.seconds: dict[str, float] = {}
        """Of the steps that have ended."""
        self._doing: dict[int, str] = {}
        """The step of each lane."""

    def hangs(self, seconds: float) -> str:
        """What is done for more than `seconds` after the load."""
        name = next((name for name in list(self._doing.values()) if name not in self.seconds), "")
        return f'its step "{name}" has not ended {seconds:.0f} s after the weights were there'

    def run(self) -> None:
        """All of them, unless they are to end."""
        self._lane(0, self._steps.first)
        own, *others = self._steps.lanes or ((),)
        threads = [
            threading.Thread(target=self._lane, args=(number, lane), name=f"{THREAD}-{number}", daemon=True)
            for number, lane in enumerate(others, 1)
        ]
        for thread in threads:
            thread.start()
        self._lane(0, own)
        for thread in threads:
            thread.join()

    def _lane(self, number: int, steps: Sequence[Step]) -> None:
        """One after the other. A thread has modes and a current device of its own."""
        with torch.no_grad():
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            for name, step in steps:
                if self.ends.is_set():
                    return
                self._doing[number], began = name, time.perf_counter()
                try:
                    step()
                except Exception:
                    logger.warning("during the load, %s: the start does it again where it needs it", name,
                                   exc_info=True)  # fmt: skip
                self.seconds[name] = time.perf_counter() - began


def import_triton() -> None:
    """What kernels are compiled by; and the driver by which they are launched."""
    from triton.runtime import driver

    driver.active.get_current_device()


def multiply(dtype: torch.dtype, device: torch.device) -> None:
    """Products by a library and by a kernel of ours: both find their code, the library makes its handle."""
    weight = torch.zeros(WIDTH, WIDTH, dtype=dtype, device=device)
    for rows in (1, FEW_ROWS + 1):
        product(torch.zeros(rows, WIDTH, dtype=dtype, device=device), weight)


def multiply_all(config: EngineConfig, device: torch.device) -> None:
    """The products of one layer for every size of both ladders, and for what their self-check runs without padding: the
    library has a kernel for some of them each, and loads it when it is first used. The model's output matrix is left
    out, for its size, and so are FP8 ones.
    """
    if (shape := _shape_of(config)) is None or shape.scheme is not None:
        return
    sizes = sorted({config.prefill_chunk, *(rows for phase in Phase for rows in _rows_of(config.rows(phase)))})
    matrices, dtype = matrices_of(shape), dtype_of(config.element)
    # One memory for all weights, and one for all inputs.
    weights = torch.zeros(max(outputs * inputs for outputs, inputs in matrices), dtype=dtype, device=device)
    given = torch.zeros(sizes[-1] * max(inputs for _, inputs in matrices), dtype=dtype, device=device)
    for outputs, inputs in matrices:
        weight = weights[: outputs * inputs].view(outputs, inputs)
        for rows in sizes:
            product(given[: rows * inputs].view(rows, inputs), weight)


def _rows_of(sizes: tuple[int, ...]) -> set[int]:
    """Those of the graphs of `sizes` and of their self-check."""
    checked = list(comparisons(sizes)) if sizes else []
    return {*sizes, *(rows for one in checked if one.eager for rows in (one.count, one.padded))}


def matrices_of(shape: ModelShape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the plain matrices that every layer of `shape` has, as they are multiplied."""
    queries, both = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    found = {"qkv": (queries + both, shape.hidden), "out": (shape.hidden, queries)}
    if shape.mixture is None:
        found["gate_up"] = ((1 + shape.gated) * shape.intermediate, shape.hidden)
        found["down"] = (shape.hidden, shape.intermediate)
    return list(dict.fromkeys(found.values()))


def sample(vocab: int, config: EngineConfig, device: torch.device) -> None:
    """Tokens drawn in every way from logits that are all alike."""
    logits = torch.zeros(ROWS, vocab, dtype=dtype_of(config.element), device=device)
    positions = torch.zeros(ROWS, dtype=torch.int64, device=device)
    slot_tokens = torch.zeros(SCRATCH_PAGE + 1, config.page_size, dtype=torch.int32, device=device)
    rehearsed(logits, positions, slot_tokens, config.page_size)


def attend(config: EngineConfig, device: torch.device) -> None:
    """Attention of one layer in both phases, over a cache of one page."""
    if (shape := _shape_of(config)) is None:
        return
    attention, dtype = attention_of(config, device, shape).backend, dtype_of(config.element)
    attention.bind(KvCache.allocate(shape, SCRATCH_PAGE + 1, config.page_size, cache_dtype(config), device))
    list(attention.reserve(ROWS, pages=1))
    for phase in Phase:
        attention.plan(dummy_inputs(phase, ROWS, config.page_size, device))
        q, k, v = (
            torch.zeros(ROWS, heads, shape.head_dim, dtype=dtype, device=device)
            for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
        )
        attention.run(0, q, k, v)


def _shape_of(config: EngineConfig) -> ModelShape | None:
    """That of the model; None where the library transformers has it and knows its shape, and where keys and values are
    of another form."""
    folder = Path(config.model.path)
    if computed_by_transformers(folder):
        return None
    shape = read_shape(folder, config.features.quantization is Quantization.Fp8)
    return shape if shape.latent is None else None

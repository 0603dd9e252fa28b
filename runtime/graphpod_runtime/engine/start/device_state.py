"""What an engine has on its device: weights, attention over a cache, static buffers, break slots."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphpod_policy import EngineConfig, ExitCode, Phase, Quantization, SpeculativeMethod, limits
from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_policy.start.footprint import pages_of
from graphpod_policy.start.obstacle import Obstacle
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.attention.choice import AttentionUnavailable, Chosen, Work, attention_for
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported, SourceFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.base.shapes import ModelShape, dtype_of
from graphpod_runtime.cache.kv import KvCache, cache_dtype
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.compiled.cache_folder import folder_of
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.drafting.proposer import Ngram
from graphpod_runtime.engine.forward.drafting.tree_seats import TreeSeats
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.forward.passes import DecodePass, Pass, PrefillPass
from graphpod_runtime.engine.forward.seats import Seats
from graphpod_runtime.engine.forward.stage_passes import StageDecode, StagePrefill
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.break_arena import BreakArena
from graphpod_runtime.graphs.breaks import BreakPoint, surrounded
from graphpod_runtime.graphs.piecewise.compilation import PiecewiseCompilation, compilation_in
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.kernels.rows.seat_rows_contract import StepRows
from graphpod_runtime.memory.span import Span
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.stage import StageModel
from graphpod_runtime.streaming.folder import NAME as STREAM_MAP
from graphpod_runtime.streaming.folder import is_streamed

logger = logging.getLogger("graphpod.engine")

SCRATCH_VALUE = 100.0
"""What the scratch page holds: finite, because attention over NaN is NaN even where it is masked, and large, so
that a real row that reads it is wrong beyond doubt."""

REHEARSED_ROWS = 2
"""Of the pass that shows what breaks take and return: not one, which many a dimension has that is no rows."""

LoadModel = Callable[[Path, torch.dtype, int, torch.device, OnProgress, bool], Model]
"""(folder, dtype, max_model_len, device, read, quantize) -> the model; raises ModelInvalid."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """All that captures need; every address that graphs may freeze is known to `addresses`."""

    place: Place
    model: Model
    attention: AttentionBackend
    attention_because: str
    """Why it is this one."""
    addresses: Addresses
    passes: dict[Phase, Pass]
    breaks: BreakArena
    seats: Seats | DraftingSeats
    """Of the sequences that decode."""
    attention_layers: int
    """Layers that call attention, counted in the rehearsal."""

    @classmethod
    def made(
        cls, config: EngineConfig, place: Place, model: Model, chosen: Chosen, rows: Mapping[Phase, int]
    ) -> "DeviceState":
        """The `chosen` attention over a scratch cache of one page, and buffers for passes of up to `rows`, next to
        `model` on `place`.
        """
        dtype = dtype_of(config.element)
        addresses = Addresses()
        addresses.register_module(model.module())
        passes = _passes_of(config, model, rows, place.device)
        breaks = BreakArena(model.shape, max(rows.values()), dtype, place.device)
        attention, pages = chosen.backend, pages_of(config, config.max_model_len)
        layers = _rehearsed(passes, breaks, config.page_size, place.device)
        # Where captures begin: the cache comes when they are measured.
        attention.bind(new_cache(config, model, place.device, pages=1))
        static = dict(attention.reserve(rows[Phase.Decode], pages))
        for name, tensor in static.items():
            addresses.register(f"attention.{name}", tensor)
        for phase, passing in passes.items():
            for name, tensor in (*passing.buffers, *passing.outputs):
                addresses.register(f"{phase}.{name}", tensor)
        for name, tensor in breaks.tensors().items():
            addresses.register(name, tensor)
        into = StepRows(
            *(passes[Phase.Decode].buffers.view(name, rows[Phase.Decode]) for name in ("tokens", "positions")),
            *(static[name] for name in ("slots", "lengths", "tables")),
        )
        device_state = cls(
            place=place,
            model=model,
            attention=attention,
            attention_because=chosen.because,
            addresses=addresses,
            passes=passes,
            breaks=breaks,
            seats=_seats_of(config, into, attention, static.get("hidden")),
            attention_layers=layers,
        )
        device_state.bind(attention.cache)
        return device_state

    def whole_passes(self, page_size: int) -> dict[Phase, BreakPoint]:
        """Each phase's pass as one break point, rehearsed, for the debug mode that runs it as that."""
        points: dict[Phase, BreakPoint] = {}
        for phase, passing in self.passes.items():
            points[phase] = BreakPoint(_whole(passing, self.attention), f"whole {phase}")
            with surrounded(self.breaks.others):
                self.attention.plan(dummy_inputs(phase, REHEARSED_ROWS, page_size, self.device))
                points[phase](0, *passing.arguments(REHEARSED_ROWS))
        self.fill_scratch()
        for name, tensor in self.breaks.others.tensors().items():
            self.addresses.register(name, tensor)
        return points

    @property
    def device(self) -> torch.device:
        """Where all of it is."""
        return self.place.device

    def new_pool(self) -> Pool:
        """An empty pool for one phase's graphs."""
        return self.place.pool(self.addresses)

    def piecewise(self, cache: CompileCache | None) -> PiecewiseCompilation:
        """The model's body, to be traced for Piecewise; traces are kept on disk, pieces compiled in `cache`."""
        hidden, body = self.passes[Phase.Prefill].buffers.view("hidden", 0), self.model.body
        # A head of EAGLE-3 has the body return more.
        read_layers = getattr(body, "read_layers", ())
        return compilation_in(folder_of(), body, f"{self.model.shape} {read_layers}", hidden, cache)

    def new_cache(self, config: EngineConfig, pages: int) -> KvCache:
        """Of `pages` pages, scratch included."""
        return new_cache(config, self.model, self.device, pages, self.place.span if config.features.sleep else None)

    def bind(self, cache: KvCache) -> None:
        """`cache` for attention, with its scratch page filled, known to captures."""
        self.attention.bind(cache)
        self.fill_scratch()
        self.addresses.register("kv.keys", cache.keys)
        self.addresses.register("kv.values", cache.values)

    def fill_scratch(self) -> None:
        """Undoes what captures and checks wrote there."""
        self.attention.cache.fill(torch.tensor([SCRATCH_PAGE], device=self.device), SCRATCH_VALUE)


def _passes_of(
    config: EngineConfig, model: Model, rows: Mapping[Phase, int], device: torch.device
) -> dict[Phase, Pass]:
    """Of up to `rows` rows, with their buffers."""
    dtype, prefill, decode = dtype_of(config.element), rows[Phase.Prefill], rows[Phase.Decode]
    states = config.features.speculative in DRAFT_HEADS
    if isinstance(model, StageModel):
        assert not states, "a start has refused drafts in a pipeline"
        return {
            Phase.Prefill: StagePrefill(model, prefill, dtype, device),
            Phase.Decode: StageDecode(model, decode, dtype, device),
        }
    return {
        Phase.Prefill: PrefillPass(model, prefill, dtype, device),
        Phase.Decode: DecodePass(model, decode, device, states=states),
    }


def new_cache(
    config: EngineConfig,
    model: Model,
    device: torch.device,
    pages: int,
    span: Callable[[int], Span] | None = None,
) -> KvCache:
    """Of `pages` pages, scratch included, in memory that `span` makes if it is to leave the device."""
    return KvCache.allocate(model.shape, pages, config.page_size, cache_dtype(config), device, model.kv_scales, span)


def _seats_of(
    config: EngineConfig, into: StepRows, attention: AttentionBackend, hidden: Tensor | None
) -> Seats | DraftingSeats:
    """Those of an engine whose steps read their rows `into` static buffers. `hidden`: that of attention, for trees."""
    width = config.feature_set().verify_width
    if width == 1:
        passes = max(2, config.features.pipeline)
        return Seats(config.page_size, into, whole_tables=attention.reads_whole_tables, passes=passes)
    assert config.max_batch is not None, "a start has derived it"
    if hidden is not None:
        steps = config.features.speculative_steps
        return TreeSeats(config.page_size, into, hidden, config.max_batch, lambda: attention.cache, steps)
    seats = DraftingSeats(config.page_size, into, config.max_batch, lambda: attention.cache.slot_tokens)
    if config.features.speculative is SpeculativeMethod.Ngram:
        seats.proposer = Ngram(width - 1)
    return seats


def _whole(passing: Pass, attention: AttentionBackend) -> Callable[..., tuple[Tensor, ...]]:
    return lambda layer, *rows: passing.compute(attention.run, *rows)


def _rehearsed(passes: dict[Phase, Pass], breaks: BreakArena, page_size: int, device: torch.device) -> int:
    """One pass of a few rows in each phase, which makes the slots of every break point and the output buffers; how many
    layers call attention."""
    layers: set[int] = set()

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        layers.add(layer)
        return q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])

    with surrounded(breaks.others):
        for phase, passing in passes.items():
            inputs = dummy_inputs(phase, REHEARSED_ROWS, page_size, device)
            passing.reserve(passing.eager(inputs, attend, REHEARSED_ROWS))
        if device.type == "cuda":
            # Products of one row have a kernel of their own, which this compiles: no request is to wait for it.
            passes[Phase.Decode].eager(dummy_inputs(Phase.Decode, 1, page_size, device), attend, 1)
    return len(layers)


def attention_of(
    config: EngineConfig, device: torch.device, shape: ModelShape, sinks: tuple[Tensor | None, ...] = ()
) -> Chosen:
    """The attention that `config` asks for, of a model of `shape`, whose layers have `sinks`. StartFailure when it
    cannot be had."""
    width = config.feature_set().verify_width
    work = Work(
        shape,
        dtype_of(config.element),
        cache_dtype(config),
        device,
        sinks,
        shared=width > 1,
        trees=config.feature_set().draft_trees,
    )
    try:
        return attention_for(work, config.features.attention)
    except AttentionUnavailable as error:
        raise StartFailure.by(Obstacle.of(ExitCode.AttentionUnavailable, str(error))) from error


def weights_bytes(model: Model) -> int:
    """Bytes of the model's parameters and buffers; memory that several of them share counts once."""
    module = model.module()
    storages = (tensor.untyped_storage() for tensor in (*module.parameters(), *module.buffers()))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def loaded(
    config: EngineConfig, place: Place, read_model: LoadModel, read: OnProgress, draft: str | None = None
) -> Model:
    """The weights on `place`, or those of the model that is to `draft`; `read` hears of every piece. StartFailure when
    it cannot be read or does not fit."""
    folder, dtype = Path(draft or config.model.path), dtype_of(config.element)
    name, where = (folder.name, "spec.engine.speculative.draftModel: ") if draft else (config.model.name, "")
    if is_streamed(folder) and (draft or config.model.stream is None):
        what = f"{where}{folder / STREAM_MAP} says that the weights are elsewhere, and the spec streams none"
        raise StartFailure(ExitCode.ModelInvalid, f"{what}; remove that file")
    try:
        quantize = config.features.quantization is Quantization.Fp8
        began = time.perf_counter()
        model = read_model(folder, dtype, limits.context(config.feature_set()), place.device, read, quantize)
        place.wait()
        seconds, gigabytes = time.perf_counter() - began, weights_bytes(model) / 1e9
        logger.info("weights of %s: %.2f GB in %.2f s, %.2f GB/s", name, gigabytes, seconds, gigabytes / seconds)
        return model
    except ModelUnsupported as error:
        raise StartFailure.by(Obstacle.of(ExitCode.ModelUnsupported, f"{where}{error}")) from error
    except SourceFailed as error:
        raise StartFailure(ExitCode.SourceFailed, str(error)) from error
    except ModelInvalid as error:
        raise StartFailure(ExitCode.ModelInvalid, f"{where}{error}") from error
    except torch.OutOfMemoryError as error:
        what = f"{where}the weights of {name} do not fit: {error}"
        raise StartFailure.by(Obstacle.of(ExitCode.WeightsTooLarge, what)) from error

"""The paged KV cache in memory, in the model's element type or in FP8."""

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphpod_policy import EngineConfig, KvCacheDtype
from graphpod_runtime.base.shapes import HOST, KvScale, ModelShape, dtype_of
from graphpod_runtime.cache.cells import bits, quantises, stored
from graphpod_runtime.memory.span import Span

CELLS_TOGETHER = 8 << 20
"""Elements of keys or values that are drawn, copied or compared at one time, unless a layer has more: drawn they are
32 MiB."""


@dataclass(frozen=True, slots=True)
class KvCache:
    """Keys and values, each [layers, pages, page_size, kv_heads, head_dim]; page 0 is scratch.

    With latent attention a token's key is its value: both are the same memory then, and attention writes the same
    there twice.
    """

    keys: Tensor
    values: Tensor
    scales: tuple[KvScale, ...]
    """Of each layer."""
    slot_tokens: Tensor
    """[pages, page_size], int32: the token of each slot, where a sequence that reads its own tokens has written it."""
    spans: tuple[Span, ...] = ()
    """Of its halves; (): they have memory that stays."""

    @classmethod
    def allocate(
        cls,
        shape: ModelShape,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device = HOST,
        scales: tuple[KvScale, ...] = (),
        span: Callable[[int], Span] | None = None,
    ) -> "KvCache":
        """A zeroed cache (finite: attention gives NaN for NaN even at masked positions). No `scales`: 1 everywhere.
        `span` makes the memory of a half, of so many bytes, that is to leave the device now and then.

        On the host it reserves addresses; the system gives a page its memory when it is first written.
        """
        size = (shape.layers, pages, page_size, shape.kv_heads, shape.head_dim)
        scales = scales if quantises(dtype) and scales else (KvScale(),) * shape.layers
        zeros = reserved if device == HOST else partial(_zeros, device)
        spans = list[Span]()

        def half() -> Tensor:
            if span is None:
                return zeros(size, dtype)
            spans.append(span(math.prod(size) * dtype.itemsize))
            return spans[-1].tensor(0, spans[-1].size).view(dtype).view(size)

        keys, tokens = half(), zeros((pages, page_size), torch.int32)
        if shape.latent is None:
            return cls(keys, half(), scales, tokens, tuple(spans))
        scales = tuple(KvScale(one.key, one.key) for one in scales)
        return cls(keys, keys, scales, tokens, tuple(spans))

    @property
    def halves(self) -> tuple[Tensor, ...]:
        """Its memory: keys and values, or what is both."""
        return (self.keys,) if self.keys is self.values else (self.keys, self.values)

    @property
    def nbytes(self) -> int:
        """Of its memory, the tokens of slots aside."""
        return sum(half.nbytes for half in self.halves)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.keys.device

    @property
    def pages(self) -> int:
        """All pages, scratch included."""
        return self.keys.shape[1]

    @property
    def page_size(self) -> int:
        """Tokens in one page."""
        return self.keys.shape[2]

    def fill(self, pages: Tensor, value: float) -> None:
        """Sets `pages` [n] of every layer to `value`, or to the nearest that the element type can hold."""
        for half in self.halves:
            bits(half).index_fill_(1, pages, self._cell(value))

    def fill_end(self, page: int, first: int, value: float) -> None:
        """The same for the slots of `page` from `first` on."""
        for half in self.halves:
            bits(half)[:, page, first:] = self._cell(value)

    def _cell(self, value: float) -> float:
        return bits(stored(torch.tensor([float(value)]), 1.0, self.keys.dtype)).item()

    def take(self, pages: Tensor) -> "PageContents":
        """A copy of `pages` [n] of every layer."""
        return tuple(bits(half).index_select(1, pages).view(half.dtype) for half in self.halves)

    def holds(self, pages: Tensor, content: "PageContents") -> bool:
        """Whether `pages` [n] hold `content`, bit for bit. The device is waited for once."""
        return not bool(self.unlike(pages, content))

    def copy(self, pages: Tensor, others: Tensor) -> None:
        """`others` [n] of every layer become what `pages` [n] are, none of which is among them."""
        for half in self.halves:
            for first, end in self._together(len(pages)):
                part = bits(half[first:end])
                part.index_copy_(1, others, part.index_select(1, pages))

    def unlike(self, pages: Tensor, content: "PageContents") -> Tensor:
        """Whether any of `pages` [n] holds another bit than `content` has; one element, not waited for."""
        other = [
            (bits(half[first:end]).index_select(1, pages) != bits(kept[first:end])).any()
            for half, kept in zip(self.halves, content, strict=True)
            for first, end in self._together(len(pages))
        ]
        return torch.stack(other).any()

    def differs(self, pages: Tensor, others: Tensor) -> Tensor:
        """Whether any of `pages` [n] holds another bit than its counterpart of `others` [n]; one element, not waited
        for."""
        other = [
            (bits(half[first:end]).index_select(1, pages) != bits(half[first:end]).index_select(1, others)).any()
            for half in self.halves
            for first, end in self._together(len(pages))
        ]
        return torch.stack(other).any()

    def draw(self, pages: Tensor, seed: int) -> None:
        """Random values, the same for the same `seed`, into `pages` [n] of every layer."""
        generator = torch.Generator(self.device).manual_seed(seed)
        for first, end in self._together(len(pages)):
            for half in (whole[first:end] for whole in self.halves):
                size = (len(half), len(pages), *half.shape[2:])
                drawn = torch.randn(size, generator=generator, device=self.device)
                bits(half).index_copy_(1, pages, bits(drawn.to(half.dtype)))

    def _together(self, pages: int) -> list[tuple[int, int]]:
        """Layers, first to before end, whose `pages` are drawn, copied or compared at one time: a launch for each layer
        would keep a device waiting, and all of them at once would take gigabytes."""
        layers = len(self.keys)
        cells = max(1, pages * math.prod(self.keys.shape[2:]))
        step = max(1, CELLS_TOGETHER // cells)
        return [(first, min(first + step, layers)) for first in range(0, layers, step)]

    def release(self) -> None:
        """Gives the memory of its `spans` back; what they hold is lost."""
        for one in self.spans:
            one.release()

    def restore(self) -> None:
        """Zeroed keys and values where they were. torch.OutOfMemoryError, and nothing taken, as `Span.restore`."""
        try:
            for one in self.spans:
                one.restore()
        except torch.OutOfMemoryError:
            self.release()
            raise

    def clear(self) -> None:
        """Zeroes every page."""
        for half in self.halves:
            half.zero_()


PageContents = tuple[Tensor, ...]
"""What some pages hold, of each half: [layers, n, page_size, kv_heads, head_dim]."""


def _zeros(device: torch.device, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.zeros(size, dtype=dtype, device=device)


def cache_dtype(config: EngineConfig) -> torch.dtype:
    """The element type of an engine's KV cache."""
    if config.features.kv_cache_dtype is KvCacheDtype.Fp8:
        return torch.float8_e4m3fn
    return dtype_of(config.element)


def reserved(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros of `size`, at least one, untouched: torch.zeros would write them all."""
    memory = mmap.mmap(-1, math.prod(size) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(size)


def page_bytes(shape: ModelShape, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page: keys and values of every layer; the four of a slot's token are lost in it."""
    halves = 2 if shape.latent is None else 1
    return halves * shape.layers * page_size * shape.kv_heads * shape.head_dim * dtype.itemsize

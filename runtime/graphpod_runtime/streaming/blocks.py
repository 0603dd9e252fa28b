"""Which bytes of a streamed checkpoint are read, and by which requests. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphpod_runtime.streaming.folder import StreamedFile
from graphpod_runtime.streaming.headers import RemoteTensor
from graphpod_sources.transfer.spans import Span, joined

BLOCK = 16 << 20
"""Bytes up to which neighbours share a buffer and a request: a norm alone is not worth one."""
PIECE = 16 << 20
"""Bytes of one request at most."""
GAP = 256 << 10
"""Bytes that are read along rather than asked around."""

Wanted = Mapping[str, Sequence[Span]]
"""By the names of tensors: the bytes of each that are read, from its own start. Others are left where they are."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes `start` to before `end` of a file, for one buffer: some `tensors`, and the `pieces` of it to ask for."""

    file: StreamedFile
    start: int
    end: int
    tensors: tuple[RemoteTensor, ...]
    pieces: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Bytes of its buffer."""
        return self.end - self.start


def blocks(files: Iterable[StreamedFile], wanted: Wanted) -> list[Block]:
    """Everything that is `wanted`, in the order of files and bytes."""
    return [block for file in files for block in _of_file(file, wanted)]


def _of_file(file: StreamedFile, wanted: Wanted) -> Iterator[Block]:
    together: list[RemoteTensor] = []
    ends = 0
    for tensor in (one for one in file.tensors if one.name in wanted):
        if together and (tensor.start - ends > GAP or tensor.end - together[0].start > BLOCK):
            yield _block(file, together, wanted)
            together, ends = [], 0
        together.append(tensor)
        ends = max(ends, tensor.end)
    if together:
        yield _block(file, together, wanted)


def _block(file: StreamedFile, tensors: Sequence[RemoteTensor], wanted: Wanted) -> Block:
    spans = joined((one.start + start, one.start + end) for one in tensors for start, end in wanted[one.name])
    start, end = min(one.start for one in tensors), max(one.end for one in tensors)
    return Block(file, start, end, tuple(tensors), tuple(_pieces(spans)))


def _pieces(spans: Sequence[Span]) -> Iterator[Span]:
    """The same bytes and small gaps between them, in requests."""
    runs: list[Span] = []
    for start, end in spans:
        if runs and start - runs[-1][1] <= GAP:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    for start, end in runs:
        for at in range(start, end, PIECE):
            yield at, min(at + PIECE, end)

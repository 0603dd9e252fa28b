"""Which bytes of a streamed checkpoint are read, by which requests."""

from graphpod_runtime.streaming.blocks import blocks
from graphpod_runtime.streaming.folder import StreamedFile
from graphpod_runtime.streaming.headers import RemoteTensor
from graphpod_sources.listing import RemoteFile


def file_of(*sizes: int) -> StreamedFile:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    tensors = tuple(
        RemoteTensor(str(index), "U8", (count,), at, at + count)
        for index, (at, count) in enumerate(zip(starts, sizes, strict=True))
    )
    return StreamedFile(RemoteFile("a", sum(sizes), "a", etag="1"), tensors)


def test_neighbours_share_a_request_and_large_tensors_have_several() -> None:
    mega = 1 << 20
    file = file_of(mega, 2 * mega, 40 * mega, 100, 0)
    found = blocks([file], {str(index): [(0, one.end - one.start)] for index, one in enumerate(file.tensors)})
    assert [[one.name for one in block.tensors] for block in found] == [["0", "1"], ["2"], ["3", "4"]]
    assert [len(block.pieces) for block in found] == [1, 3, 1]
    assert sum(end - start for block in found for start, end in block.pieces) == 43 * mega + 100


def test_each_tensor_of_a_block_is_looked_at_once() -> None:
    looked: list[int] = []

    class Counted(RemoteTensor):
        @property
        def end(self) -> int:  # type: ignore[override]
            looked.append(self.start)
            return self.start + 1

    tensors = tuple(object.__new__(Counted) for _ in range(300))
    for at, one in enumerate(tensors):
        for field, value in (("name", str(at)), ("start", at), ("dtype", "U8"), ("shape", (1,))):
            object.__setattr__(one, field, value)
    file = StreamedFile(RemoteFile("a", 300, "a", etag="1"), tensors)
    [block] = blocks([file], {one.name: [(0, 1)] for one in tensors})
    assert len(block.tensors) == 300
    assert len(looked) < 10 * 300


def test_what_is_not_wanted_is_asked_around() -> None:
    mega = 1 << 20
    file = file_of(4 * mega, 8 * mega, 4 * mega)
    [first, second] = blocks([file], {"0": [(0, mega), (3 * mega, 4 * mega)], "2": [(0, 5)]})
    assert first.pieces == ((0, mega), (3 * mega, 4 * mega))
    assert second.pieces == ((12 * mega, 12 * mega + 5),)

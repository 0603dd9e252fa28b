"""A file by HTTP ranges: the part that was asked for, of the version that was listed, and never more."""

from collections.abc import Iterator

from graphpod_sources.listing import RemoteFile
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.http_client import Reply


def header(file: RemoteFile, start: int, end: int | None) -> dict[str, str]:
    """The Range header; none for a whole file, which any server can answer."""
    if start == 0 and (end is None or end == file.size):
        return {}
    return {"Range": f"bytes={start}-{'' if end is None else end - 1}"}


def body(reply: Reply, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
    """The bytes of an answer. Raises `Problem`: ChangedUnderUs for another version or size, NoRanges for a server that
    ignores the range, ServerError for other bytes.
    """
    name = shown(file.path)
    if start and reply.range_start() is None:
        raise Problem(
            Reason.NoRanges,
            f"{name}: {reply.where} ignores the header Range: it answers {reply.status} with the whole file, and bytes "
            f"from {start} on were requested",
        )
    if reply.range_start() not in (None, start):
        raise Problem(Reason.ServerError, f"{name}: {reply.where} sends byte {reply.range_start()} instead of {start}")
    total = reply.total()
    if file.size is not None and total is not None and total != file.size:
        raise Problem(Reason.ChangedUnderUs, f"{name}: {reply.where} has {total} bytes, and {file.size} were listed")
    tag = reply.headers.get("etag")
    if file.etag and tag and tag != file.etag:
        raise Problem(Reason.ChangedUnderUs, f"{name}: {reply.where} has another version ({tag}, not {file.etag})")
    left = None if end is None else end - start
    for chunk in reply.chunks():
        if left is not None and len(chunk) >= left:
            yield chunk[:left]
            return
        left = None if left is None else left - len(chunk)
        yield chunk

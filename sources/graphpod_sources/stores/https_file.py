"""https://: one file at an address, of which the checksum is known: an archive, or weights."""

import posixpath
from collections.abc import Iterator

from graphpod_sources.listing import Listing, Packing, RemoteFile
from graphpod_sources.names import safe
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import ranges
from graphpod_sources.stores.http_client import Http
from graphpod_sources.uri import ModelUri

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd")


class Web:
    """A file of a web server."""

    def __init__(self, uri: ModelUri, http: Http, sha256: str, token: str | None) -> None:
        self._uri, self._http, self._sha256 = uri, http, sha256
        self._secret = {"Authorization": f"Bearer {token}"} if token else {}

    def listing(self) -> Listing:
        """Asks for one byte: the answer says whether the server takes ranges, and how large the file is."""
        with self._http.get(self._uri.text, headers={"Range": "bytes=0-0"}, secret=self._secret) as reply:
            takes, count, tag = reply.range_start() == 0, reply.total(), reply.headers.get("etag")
        name = posixpath.basename(self._uri.path)
        archive = name.lower().endswith(ARCHIVES)
        if tag is not None and tag.startswith("W/"):
            tag = None  # equal in meaning, not in bytes
        file = RemoteFile(
            safe("archive" if archive else name, self._uri.shown),
            count,
            self._uri.text,
            self._sha256,
            etag=tag,
            ranges=takes and count is not None,
        )
        if count == 0:
            raise Problem(Reason.NoWeights, f"{self._uri.shown}: is empty")
        packing = Packing.Archive if archive else Packing.Files
        return Listing(f"sha256:{self._sha256}", (file,), packing)

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        headers = ranges.header(file, start, end)
        with self._http.get(self._uri.text, headers=headers, secret=self._secret) as reply:
            yield from ranges.body(reply, file, start, end)

"""What the hub and the object storage have in common: files over HTTP, with ranges, and faults on the way.

A stub is a function from a request to a `Reply`; everything that touches a socket is here. Standard library only.
"""

from __future__ import annotations

import argparse
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stubs.faults.board import Armed, Board
from stubs.faults.control import Control, Verb
from stubs.faults.delivery import pieces
from stubs.faults.fault import Answer, Cut, FaultError, Freeze, Point, Slow

PORT, CONTROL_PORT = 8080, 8081
CHUNK = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `path` is decoded, `raw_path` and `query` are as they came; header names are in lower case."""

    method: str
    path: str
    raw_path: str = ""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Where:
    """The requests a fault is about: of these methods, with `path` somewhere in their path."""

    methods: frozenset[str] = frozenset()
    path: str = ""

    def matches(self, asked: Asked, /) -> bool:
        return (not self.methods or asked.method in self.methods) and self.path in asked.path


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: `body`, or the bytes of `file` from `start` to before `end`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: Path | None = None
    start: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        return len(self.body) if self.file is None else self.end - self.start


Program = Callable[[Asked], Reply]
Refusal = Callable[[int], Reply]
"""How a stub says no with a status, in its protocol's words."""


def whole(file: Path, headers: Mapping[str, str]) -> Reply:
    """The answer that is a file."""
    return Reply(200, {"Accept-Ranges": "bytes", **headers}, file=file, end=file.stat().st_size)


def ranged(reply: Reply, header: str | None) -> Reply:
    """The part of a file that a Range header asks for: 206, or 416 when there is no such part (RFC 9110, 14.2).

    One range only; a header with several, or none that can be read, is ignored as the RFC allows.
    """
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if reply.status != 200 or reply.file is None or found is None or found[0] == "bytes=-":
        return reply
    size = reply.end
    first = int(found[1]) if found[1] else max(0, size - int(found[2]))
    last = min(int(found[2]), size - 1) if found[1] and found[2] else size - 1
    if first > last:
        return Reply(416, {"Content-Range": f"bytes */{size}"})
    span = {"Content-Range": f"bytes {first}-{last}/{size}"}
    return replace(reply, status=206, headers={**reply.headers, **span}, start=first, end=last + 1)


class WebStub:
    """A program on a port, its faults on a board, and a control port next to it with `more` verbs.

    `tls` is a file with the certificate and its key in PEM: with it the program's port speaks TLS.
    """

    def __init__(
        self,
        program: Program,
        refusal: Refusal,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        control: tuple[str, int] = ("127.0.0.1", 0),
        more: Mapping[tuple[str, str], Verb] | None = None,
        tls: Path | None = None,
    ) -> None:
        self._program, self._refusal = program, refusal
        self.board: Board[Asked] = Board()
        self._counts: Counter[str] = Counter()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                stub._handle(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

            def log_message(self, form: str, *words: object) -> None:
                print(form % words, flush=True)

        self._server = ThreadingHTTPServer(listen, Handler)
        self._server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            # the handshake in the request's own thread: a silent caller must not keep out the others
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._scheme = "https" if tls else "http"
        verbs = {("GET", "/healthz"): lambda _, __: "ok", **(more or {})}
        self._control = Control(self.board, Where, self.counts, verbs, control)

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    @property
    def control_url(self) -> str:
        return self._control.url

    def counts(self) -> dict[str, int]:
        """Requests that have arrived, by `METHOD path`."""
        return dict(sorted(self._counts.copy().items()))

    @contextmanager
    def serving(self) -> Iterator[WebStub]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with self._control.serving():
                yield self
        finally:
            self.board.clear()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, unquote(parts.path), parts.path, parts.query, headers)
        self._counts[f"{asked.method} {asked.path}"] += 1
        struck = self.board.strike(asked)
        reply = self._reply(asked, struck)
        for armed in struck:
            if isinstance(armed.fault.effect, Freeze) and armed.fault.effect.point is Point.Answer:
                armed.until_lifted()
        handler.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(reply.size)}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if asked.method != "HEAD" and not _write(handler, reply, struck):
            handler.close_connection = True

    def _reply(self, asked: Asked, struck: Sequence[Armed[Asked]]) -> Reply:
        for armed in struck:
            effect = armed.fault.effect
            if isinstance(effect, Slow):
                armed.until_lifted(effect.delay)
            elif isinstance(effect, Freeze) and effect.point is Point.Request:
                armed.until_lifted()
            elif isinstance(effect, Answer):
                reply = self._refusal(effect.status)
                after = {} if effect.retry_after is None else {"Retry-After": str(effect.retry_after)}
                return replace(reply, headers={**reply.headers, **after})
        return ranged(self._program(asked), asked.headers.get("range"))


def _write(handler: BaseHTTPRequestHandler, reply: Reply, struck: Sequence[Armed[Asked]]) -> bool:
    """The body as the faults let it pass; whether the connection may go on."""
    cut = min((a.fault.effect.after_bytes for a in struck if isinstance(a.fault.effect, Cut)), default=None)
    slow = next((armed for armed in struck if isinstance(armed.fault.effect, Slow)), None)
    rate = slow.fault.effect.bytes_per_second if slow and isinstance(slow.fault.effect, Slow) else None
    left = reply.size if cut is None else min(cut, reply.size)
    for chunk in _chunks(reply, left):
        for piece in pieces(chunk, rate):
            handler.wfile.write(piece)
            if slow is not None and rate is not None and not slow.lifted:
                time.sleep(len(piece) / rate)
    return cut is None or cut >= reply.size


def _chunks(reply: Reply, size: int) -> Iterator[bytes]:
    if reply.file is None:
        yield reply.body[:size]
        return
    with reply.file.open("rb") as file:
        file.seek(reply.start)
        while size > 0 and (chunk := file.read(min(CHUNK, size))):
            size -= len(chunk)
            yield chunk


def inside(folder: Path, name: str) -> Path | None:
    """The path of that name below the folder; None for one that leads out of it."""
    place = (folder / name.lstrip("/")).resolve()
    return place if place.is_relative_to(folder.resolve()) else None


def files(folder: Path) -> dict[tuple[str, str], Verb]:
    """The control verb `PUT /files/PATH`: the body becomes that file of the folder."""

    def put(name: str, body: bytes) -> int:
        file = inside(folder, unquote(name))
        if file is None or not name:
            raise FaultError(f"PUT /files/PATH wants a path inside the folder, not {name!r}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        return len(body)

    return {("PUT", "/files"): put}


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """What every web stub's command line has."""
    made = argparse.ArgumentParser(prog=f"python -m stubs.{name}", description=description)
    made.add_argument("--address", default="127.0.0.1", help="of both ports, default: %(default)s")
    made.add_argument("--port", type=int, default=PORT, help="default: %(default)s")
    made.add_argument("--control", type=int, default=CONTROL_PORT, help="control port, default: %(default)s")
    return made


def run(stub: WebStub) -> int:
    """Serve until interrupted."""
    with stub.serving():
        print(f"serving at {stub.url}, control {stub.control_url}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0

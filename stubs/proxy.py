"""The fault proxy between a client of Kubernetes and its API server: `python -m stubs.proxy --kubeconfig FILE`.

TLS on both sides; the client's token passes through. Faults are added and lifted while it runs, in this process through
`Proxy.add` and `lift`, or from outside through the control port. Requests are counted as they arrive. HTTP/1.1 only,
and no protocol upgrades: `kubectl exec` and `port-forward` are refused.

Everything but the public methods of `Proxy` runs in one event loop, in a thread of its own. A request is struck by the
faults in force when it arrives; an open watch also by those added later.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from stubs import certificate, kubecall
from stubs.faults import fault
from stubs.faults.board import Armed, Board
from stubs.faults.control import Control
from stubs.faults.delivery import Delivery, pieces, status
from stubs.faults.fault import Answer, Effect, Fault, FaultError, Freeze, Point, Slow, Turn
from stubs.kubecall import Call, Verb, Which
from stubs.kubeconfig import Kubeconfig

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "proxy-connection"}
ANY = Which()


class Proxy:
    """One proxy to the API server of a kubeconfig. `board` holds its faults."""

    def __init__(
        self,
        upstream: Path,
        faults: Sequence[Fault[Call]] = (),
        listen: tuple[str, int] = ("127.0.0.1", 0),
        control: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._upstream = Kubeconfig.load(upstream)
        self._listen, self._control_address = listen, control
        self._calls: Counter[Call] = Counter()
        self._streams: set[_Stream] = set()
        self.board: Board[Call] = Board(faults, self._added)

    # --- from any thread, while it serves

    @property
    def url(self) -> str:
        return f"https://{self._listen[0]}:{self._listen[1]}"

    @property
    def control_url(self) -> str:
        return self._control.url

    def kubeconfig(self, of: Path, to: Path) -> Path:
        """Writes to `to` the kubeconfig `of` with the proxy as its server."""
        to.touch(mode=0o600)
        to.write_text(Kubeconfig.load(of).through(self.url, self._certificate.certificate))
        return to

    def add(self, effect: Effect, which: Which = ANY, turn: Turn | None = None) -> Armed[Call]:
        """Put a fault in force, for open watches as well."""
        return self.board.add(Fault(effect, which, turn or Turn()))

    def lift(self, armed: Armed[Call]) -> None:
        """End it; what it holds goes on."""
        self.board.lift(armed.number)

    @contextmanager
    def during(self, effect: Effect, which: Which = ANY, turn: Turn | None = None) -> Iterator[Armed[Call]]:
        """The fault while the block runs."""
        armed = self.add(effect, which, turn)
        try:
            yield armed
        finally:
            self.lift(armed)

    def count(self, which: Which = ANY) -> int:
        """Requests of this kind that have arrived."""
        return sum(n for call, n in self._calls.copy().items() if which.matches(call))

    def counts(self) -> dict[str, int]:
        """Requests that have arrived, by `verb resource[/subresource]`."""
        found: Counter[str] = Counter()
        for call, n in self._calls.copy().items():
            found[f"{call.verb} {'/'.join(filter(None, (call.resource or call.path, call.subresource)))}"] += n
        return dict(sorted(found.items()))

    @property
    def connections(self) -> int:
        """How many askers hold a connection, as far as it has heard."""
        assert self._runner.server is not None  # it serves
        return len(self._runner.server.connections)

    def refuse(self) -> None:
        """Stops listening, and every open connection ends."""
        self._run(self._close_port())

    def accept(self) -> None:
        """Listen again, on the same port."""
        self._run(self._open_port())

    @contextmanager
    def serving(self) -> Iterator[Proxy]:
        """Serve from a thread of its own until the block ends."""
        self._certificate = certificate.make([f"IP:{self._listen[0]}"])
        more = {("PUT", "/listening"): self._listening}
        self._control = Control(self.board, Which, self.counts, more, self._control_address)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="fault-proxy")
        with ExitStack() as stack:
            stack.callback(self._loop.close)
            thread.start()
            stack.callback(thread.join)
            stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
            self._run(self._open())
            stack.callback(lambda: self._run(self._close()))
            stack.callback(self.board.clear)
            stack.enter_context(self._control.serving())
            yield self

    # --- in the loop's thread

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _listening(self, _: str, body: bytes) -> bool:
        wanted = json.loads(body)
        if not isinstance(wanted, bool):
            raise FaultError(f"listening is true or false, not {body!r}")
        (self.accept if wanted else self.refuse)()
        return wanted

    def _added(self, armed: Armed[Any]) -> None:
        if hasattr(self, "_loop") and not isinstance(armed.fault.effect, Answer):
            self._loop.call_soon_threadsafe(self._meet_all, armed)

    def _meet_all(self, armed: Armed[Any]) -> None:
        for stream in tuple(self._streams):
            stream.meet(armed)

    async def _open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream.tls())
        self._client = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        await self._open_port()

    async def _open_port(self) -> None:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        host, port = self._listen
        site = web.TCPSite(self._runner, host, port, ssl_context=self._own_tls(), reuse_address=True)
        await site.start()
        self._listen = self._runner.addresses[0][:2]

    async def _close_port(self) -> None:
        await self._runner.cleanup()

    async def _close(self) -> None:
        await self._close_port()
        await self._client.close()

    def _own_tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as pem:  # the ssl module reads key and certificate from a file only
            pem.write(self._certificate.key + self._certificate.certificate)
            pem.flush()
            context.load_cert_chain(pem.name)
        return context

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        call = kubecall.read(request.method, request.path, request.query, request.headers.get("User-Agent", ""))
        self._calls[call] += 1
        if "upgrade" in request.headers:
            return web.Response(status=501, text="the fault proxy does not pass on protocol upgrades")
        body = await request.read()
        struck = self.board.strike(call)
        for armed in struck:
            effect = armed.fault.effect
            if isinstance(effect, Slow):
                await self._lifted(armed, effect.delay)
            elif isinstance(effect, Freeze) and effect.point is Point.Request:
                await self._lifted(armed)
            elif isinstance(effect, Answer):
                after = {} if effect.retry_after is None else {"Retry-After": str(effect.retry_after)}
                said = status(effect.status)
                return web.Response(status=effect.status, body=said, headers=after, content_type="application/json")
        url = URL(self._upstream.server + request.raw_path, encoded=True)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        try:
            answer = await self._client.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False
            )
        except aiohttp.ClientConnectionError:  # the API server is gone: so is this connection
            return _hang_up(request)
        async with answer:
            return await self._deliver(request, call, answer, struck)

    async def _deliver(
        self, request: web.BaseRequest, call: Call, answer: aiohttp.ClientResponse, struck: list[Armed[Call]]
    ) -> web.StreamResponse:
        stream = _Stream(call, struck)
        filling = asyncio.create_task(stream.fill(answer))
        if call.verb is Verb.WATCH and answer.status == 200:
            self._streams.add(stream)
        try:
            said = b"".join([await self._meet(stream, armed) for armed in struck])
            response = await _begin(request, answer)
            await stream.write(response, said)
            while not stream.delivery.ended and (unit := await stream.inbox.get()) is not None:
                passing = await self._meet(stream, unit) if isinstance(unit, Armed) else stream.delivery.let(unit)
                await stream.write(response, passing)
        finally:
            self._streams.discard(stream)
            filling.cancel()
        broken = filling.done() and not filling.cancelled() and filling.exception() is not None
        return _hang_up(request, response) if stream.delivery.cut or broken else response

    async def _meet(self, stream: _Stream, armed: Armed[Call]) -> bytes:
        """Put a fault in force for a body; what it says at once."""
        effect = armed.fault.effect
        if isinstance(effect, Freeze):
            await self._lifted(armed)
        elif isinstance(effect, Slow):
            stream.slow = armed
        return stream.delivery.meet(effect)

    async def _lifted(self, armed: Armed[Call], at_most: float | None = None) -> None:
        lifted = asyncio.Event()

        def tell() -> None:
            self._loop.call_soon_threadsafe(lifted.set)

        armed.when_lifted(tell)
        with suppress(TimeoutError):
            await asyncio.wait_for(lifted.wait(), at_most)


class _Stream:
    """A body under way: what came from the API server, and the faults that came meanwhile, in one order."""

    def __init__(self, call: Call, struck: list[Armed[Call]]) -> None:
        self._call, self._seen = call, set(struck)
        self.inbox: asyncio.Queue[bytes | Armed[Call] | None] = asyncio.Queue()
        self.delivery = Delivery()
        self.slow: Armed[Call] | None = None

    def meet(self, armed: Armed[Call]) -> None:
        if armed not in self._seen and armed.befalls(self._call):
            self.inbox.put_nowait(armed)

    async def write(self, response: web.StreamResponse, passing: bytes) -> None:
        effect = self.slow.fault.effect if self.slow and not self.slow.lifted else None
        rate = effect.bytes_per_second if isinstance(effect, Slow) else None
        for piece in pieces(passing, rate):
            await response.write(piece)
            if rate is not None and self.slow is not None and not self.slow.lifted:
                await asyncio.sleep(len(piece) / rate)

    async def fill(self, answer: aiohttp.ClientResponse) -> None:
        """The body's events or pieces, then None, also when the API server breaks off."""
        lines = self._call.verb is Verb.WATCH and answer.content_type == "application/json"
        rest = b""
        try:
            async for piece in answer.content.iter_any():
                if not lines:
                    self.inbox.put_nowait(piece)
                    continue
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    self.inbox.put_nowait(line + b"\n")
            if rest:
                self.inbox.put_nowait(rest)
        finally:
            self.inbox.put_nowait(None)


async def _begin(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = [(k, v) for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP]
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend(headers)
    await response.prepare(request)
    return response


def _hang_up(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """End the connection where it is. What was written still goes out."""
    if request.transport is not None:
        request.transport.close()
    return response or web.Response()


def main(argv: Sequence[str]) -> int:
    """Run until interrupted; says where it is."""
    parser = argparse.ArgumentParser(prog="python -m stubs.proxy", description="A fault proxy to an API server.")
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"), help="default: $KUBECONFIG")
    parser.add_argument("--write-kubeconfig", type=Path, required=True, metavar="FILE", help="the one that leads here")
    parser.add_argument("--listen", default="127.0.0.1:0", help="default: %(default)s, a free port")
    parser.add_argument("--control", default="127.0.0.1:0", help="default: %(default)s, a free port")
    parser.add_argument("--faults", type=Path, metavar="FILE", help="JSON: a list of rows")
    args = parser.parse_args(argv)
    if args.kubeconfig is None:
        parser.error("--kubeconfig or KUBECONFIG says which API server is meant")
    rows = json.loads(args.faults.read_text()) if args.faults else []
    proxy = Proxy(
        args.kubeconfig, [fault.read(row, Which) for row in rows], _address(args.listen), _address(args.control)
    )
    with proxy.serving():
        print(f"proxy {proxy.url}, control {proxy.control_url}", flush=True)
        print(f"KUBECONFIG={proxy.kubeconfig(args.kubeconfig, args.write_kubeconfig)}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

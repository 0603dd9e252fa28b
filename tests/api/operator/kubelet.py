"""A kubelet for one thing only: `pods/portforward`, as kubelets speak it, with TLS on an address of its own."""

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from testbed import Cluster

PROTOCOL = "v4.channel.k8s.io"
NODE = "forwarder"


class Kubelet:
    """Answers of pods by name: bytes that one connection to the pod gets, or None for a pod that hangs."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.answers: dict[str, bytes | None] = {}
        self.requests: list[bytes] = []

    async def _forward(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        port = int(request.query["port"]).to_bytes(2, "little")
        await socket.send_bytes(b"\x00" + port)
        await socket.send_bytes(b"\x01" + port)
        message = await socket.receive()
        self.requests.append(message.data[1:])
        answer = self.answers.get(request.match_info["pod"], b"")
        if answer is None:
            await asyncio.sleep(6)
        elif not answer:
            await socket.send_bytes(b"\x01error forwarding port 8001: connect: connection refused")
        else:
            for begin in range(0, len(answer), 30_000):
                await socket.send_bytes(b"\x00" + answer[begin : begin + 30_000])
        await socket.close()
        return socket

    @contextmanager
    def serving(self, host: str) -> Iterator["Kubelet"]:
        """On a free port of this address; the Node that leads there exists meanwhile."""
        key, certificate = self._folder / "kubelet.key", self._folder / "kubelet.crt"
        words = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=kubelet",
        ]
        subprocess.run(["openssl", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        loop, started = asyncio.new_event_loop(), threading.Event()
        port: list[int] = []

        async def serve() -> web.AppRunner:
            app = web.Application()
            app.router.add_get("/portForward/{namespace}/{pod}", self._forward)
            app.router.add_get("/portForward/{namespace}/{pod}/{uid}", self._forward)
            runner = web.AppRunner(app, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, host, 0, ssl_context=context)
            await site.start()
            port.append(runner.addresses[0][1])
            started.set()
            return runner

        def run() -> None:
            asyncio.set_event_loop(loop)
            runner = loop.run_until_complete(serve())
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(10)
        try:
            self._register(host, port[0])
            yield self
        finally:
            self._cluster.kubectl("delete", "node", NODE, "--ignore-not-found")
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)

    def _register(self, host: str, port: int) -> None:
        status = {
            "addresses": [{"type": "InternalIP", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        self._cluster.kubectl("apply", "-f", "-", input=json.dumps(node))
        patch = json.dumps({"status": status})
        self._cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)

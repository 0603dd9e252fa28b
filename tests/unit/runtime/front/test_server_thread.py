"""A server on a thread of its own: it answers what is open before it is said to have stopped."""

import asyncio
import threading
from typing import Any

from graphpod_runtime.front.server.listen import listen
from graphpod_runtime.front.server.server_thread import ServerThread

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"


async def test_stop_returns_when_the_open_request_is_answered_and_the_thread_has_ended() -> None:
    asked, answer = threading.Event(), threading.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        asked.set()
        await asyncio.to_thread(answer.wait, 60)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    bound = listen("127.0.0.1", 0)
    served = ServerThread("served", app, bound)
    served.start()
    reader, writer = await asyncio.open_connection(*bound.getsockname())
    writer.write(REQUEST)
    assert await asyncio.to_thread(asked.wait, 60)
    stopped = asyncio.create_task(served.stop(60))
    assert not (await asyncio.wait((stopped,), timeout=0.1))[0]
    answer.set()
    await stopped
    assert "served" not in {thread.name for thread in threading.enumerate()}
    assert (await reader.read()).endswith(b"answered\r\n0\r\n\r\n")
    writer.close()


async def test_stop_waits_no_longer_than_it_is_told() -> None:
    answer = threading.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await asyncio.to_thread(answer.wait, 60)

    bound = listen("127.0.0.1", 0)
    served = ServerThread("stuck", app, bound)
    served.start()
    _, writer = await asyncio.open_connection(*bound.getsockname())
    writer.write(REQUEST)
    await asyncio.wait_for(served.stop(0.2), 30)
    answer.set()
    writer.close()

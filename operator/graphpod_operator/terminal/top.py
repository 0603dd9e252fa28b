"""`graphpod top`: a table of services and what their pods do, drawn again every few seconds.

On a terminal it refreshes until Ctrl-C. In a pipe, with --once or with -o json it prints one table: by port-forward
after two scrapes of each pod, so that it has rates.

Exit codes: 0, and 2 where the cluster, Prometheus or an argument cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import Any

import aiohttp

from graphpod_operator.cache.pod import Pod
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.text import Ink, coloured, plain
from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.kube.connection import Connection
from graphpod_operator.terminal.sources import objects, prometheus
from graphpod_operator.terminal.sources.admin_ports import AdminPorts, Answer
from graphpod_operator.terminal.values.fields import printable
from graphpod_operator.terminal.values.scrape import SCRAPE_BYTES, Scrape, ScrapeInvalid, scrape
from graphpod_operator.terminal.views.row import PodRead, Row, from_pods, from_prometheus
from graphpod_operator.terminal.views.screen import draw, screen, size
from graphpod_operator.terminal.views.table import table

Rows = Callable[[], Awaitable[list[Row]]]


class Scraped:
    """Rows by scraping each pod; keeps each pod's last scrape for the rates of the next round."""

    def __init__(self, wire: Connection, namespace: str | None) -> None:
        self._wire = wire
        self._namespace = namespace
        self._ports = AdminPorts(wire)
        self._last: dict[tuple[str, str], Scrape] = {}
        """By uid and container: a new container of a pod counts from 0."""

    async def rows(self) -> list[Row]:
        """One round. Raises ApiError."""
        services = await objects.services(self._wire, self._namespace)
        pods = [pod for pod in await objects.pods(self._wire, self._namespace) if pod.running and not pod.deleting]
        answers = await self._ports.read(pods, "/metrics", SCRAPE_BYTES)
        reads = {pod.uid: self._read(pod, answers[pod.uid]) for pod in pods}
        kept = ((pod, reads[pod.uid].now or reads[pod.uid].before) for pod in pods)
        self._last = {(pod.uid, pod.container): found for pod, found in kept if found is not None}
        of_service: dict[tuple[str, str], list[PodRead]] = defaultdict(list)
        for pod in pods:
            if pod.key is not None:
                of_service[pod.key.namespace, pod.key.name].append(reads[pod.uid])
        return [from_pods(one, of_service[one.namespace, one.name]) for one in services]

    def _read(self, pod: Pod, answer: Answer) -> PodRead:
        before = self._last.get((pod.uid, pod.container))
        if answer.trouble:
            return PodRead(pod.name, before, None, answer.trouble)
        try:
            return PodRead(pod.name, before, scrape(answer.body, answer.at))
        except ScrapeInvalid as error:
            return PodRead(pod.name, before, None, printable(str(error)))


def run(arguments: argparse.Namespace) -> int:
    """The command; its exit code. Raises InputError."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(arguments))
    return 0


async def _run(arguments: argparse.Namespace) -> None:
    namespace: str | None = None if arguments.all_namespaces else arguments.namespace
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(objects.connected(arguments.context))
        if arguments.prometheus is not None:
            session = await stack.enter_async_context(aiohttp.ClientSession())

            async def rows() -> list[Row]:
                loads = await prometheus.ask(session, arguments.prometheus, namespace)
                services = await objects.services(wire, namespace)
                return [from_prometheus(one, loads) for one in services]

            source: Rows = rows
        else:
            source = Scraped(wire, namespace).rows
        if arguments.output == "json" or arguments.once or not sys.stdout.isatty():
            await _print_once(arguments, source, namespace)
        else:
            with screen():
                await _watch(arguments, source, namespace)


async def _print_once(arguments: argparse.Namespace, source: Rows, namespace: str | None) -> None:
    rows = await _first(source)
    if arguments.prometheus is None and any(row.pods for row in rows):
        await asyncio.sleep(arguments.interval)
        rows = await _first(source)
    if arguments.output == "json":
        print(json.dumps(as_plain(rows, arguments), indent=2, ensure_ascii=False))
        return
    on_terminal = sys.stdout.isatty()
    lines = table(rows, size()[0] if on_terminal else None, namespace is None, coloured if on_terminal else plain)
    print("\n".join(lines))


def as_plain(rows: Sequence[Row], arguments: argparse.Namespace) -> dict[str, Any]:
    """Plain values, for `-o json`."""
    source = "port-forward" if arguments.prometheus is None else "prometheus"
    return {"source": source, "services": [row.as_dict() for row in rows]}


async def _first(source: Rows) -> list[Row]:
    """A round that must succeed. Raises InputError."""
    try:
        return await source()
    except ApiError as error:
        raise InputError(str(error)) from error


async def _watch(arguments: argparse.Namespace, source: Rows, namespace: str | None) -> None:
    """Rounds until a signal. The first must succeed; a later failure is shown over the last table."""
    loop, changed, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    stop = asyncio.create_task(ended.wait())
    rows, trouble = None, ""

    def frame() -> None:
        width, height = size()
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        said = f"graphpod top  {now}  {where}  every {arguments.interval:g} s  Ctrl-C ends"
        head = coloured(Ink.Bad, f"{now}  {trouble}"[:width]) if trouble else coloured(Ink.Faint, said[:width])
        lines = ["reading the pods …"] if rows is None else table(rows, width, namespace is None, coloured)
        draw(head, lines, height)

    frame()
    while not ended.is_set():
        began = time.monotonic()
        turn = asyncio.ensure_future(source())
        await asyncio.wait((turn, stop), return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            break
        try:
            rows, trouble = turn.result(), ""
        except (ApiError, InputError) as error:
            if rows is None:
                raise InputError(str(error)) from error
            trouble = printable(str(error))
        # the first rates soon: two scrapes a second apart
        first = (
            rows is not None
            and arguments.prometheus is None
            and all(r.load is None or r.load.replays is None for r in rows)
        )
        pause = min(arguments.interval, 1.0) if first else arguments.interval
        while not ended.is_set() and (left := began + pause - time.monotonic()) > 0:
            frame()
            changed.clear()
            resized = asyncio.create_task(changed.wait())
            done, _ = await asyncio.wait((stop, resized), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            resized.cancel()
            if not done:
                break
        frame()
    stop.cancel()

"""`graphpod why NAME`: one page about a service: verdict, next step, and what they rest on.

Exit codes: 0 Ready as planned. 2: an argument or the cluster cannot be used. 3: Ready, and something is less than the
spec requests or a newer plan is offered. 4: not Ready; the first lines say why and what to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from graphpod_operator.cache.pod import Pod
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.text import coloured, plain
from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.kube.connection import Connection
from graphpod_operator.observe.admin_port import MAX_BYTES
from graphpod_operator.terminal.sources import objects
from graphpod_operator.terminal.sources.admin_ports import AdminPorts
from graphpod_operator.terminal.values.drafts import Drafts
from graphpod_operator.terminal.values.scrape import SCRAPE_BYTES, Scrape, ScrapeInvalid, scrape
from graphpod_operator.terminal.values.warmup import PodState, start_of
from graphpod_operator.terminal.views.page import PODS, Findings, as_dict, judged, page
from graphpod_operator.terminal.views.screen import size

WIDTH = 112
"""Of the page in a pipe, and the most on a terminal."""
T = TypeVar("T")


def run(arguments: argparse.Namespace, name: str) -> int:
    """The command; its exit code. Raises InputError."""
    try:
        found = asyncio.run(_findings(arguments, name))
    except ApiError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        return 0
    if arguments.output == "json":
        print(json.dumps(as_dict(found), indent=2, ensure_ascii=False))
    else:
        on_terminal = sys.stdout.isatty()
        width = min(WIDTH, size()[0]) if on_terminal else WIDTH
        sys.stdout.write(page(found, width, coloured if on_terminal else plain))
    return judged(found).exit_code


async def _findings(arguments: argparse.Namespace, name: str) -> Findings:
    namespace = arguments.namespace
    async with objects.connected(arguments.context) as wire:
        raw = await objects.service(wire, namespace, name)
        revisions = await _if_allowed(objects.revisions(wire, namespace, name))
        pods = await _if_allowed(objects.pods(wire, namespace, name))
        events = await _if_allowed(objects.events(wire, namespace, name))
        states = None if pods is None else await _states(wire, pods)
        drafts = Drafts.of(raw, ())
        if drafts is not None and pods is not None:
            drafts = Drafts.of(raw, await _scrapes(wire, pods))
    return Findings(raw, revisions, states, events, datetime.now(UTC), drafts)


async def _if_allowed(answer: Awaitable[T]) -> T | None:
    """None where the user lacks the right; the rest of the page does not need it."""
    try:
        return await answer
    except ApiError as error:
        if error.status == 403:
            return None
        raise


def _running(pods: list[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.running and pod.answers_requests and not pod.deleting][:PODS]


async def _scrapes(wire: Connection, pods: list[Pod]) -> list[Scrape]:
    """What the pods count; those that answer something else are left out."""
    answers = await AdminPorts(wire).read(_running(pods), "/metrics", SCRAPE_BYTES)
    found = []
    for answer in answers.values():
        if not answer.trouble:
            with suppress(ScrapeInvalid):
                found.append(scrape(answer.body, answer.at))
    return found


async def _states(wire: Connection, pods: list[Pod]) -> list[PodState]:
    answers = await AdminPorts(wire).read(_running(pods), "/warmup", MAX_BYTES)
    return [
        PodState(pod, None, answers[pod.uid].trouble if pod.uid in answers else "")
        if pod.uid not in answers or answers[pod.uid].trouble
        else start_of(pod, answers[pod.uid].body)
        for pod in pods
    ]

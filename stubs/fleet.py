"""The admin ports of any number of simulated pods, and the fate of each: `python3 -m stubs.fleet --kubeconfig FILE`.

It watches the pods of our services and gives each a script, an annotation made from the same story that the pod's
admin port reports. The Stages in stages.yaml play it on the pod's status, so that what a kubelet would see and what the
engine says agree. `/NAMESPACE/POD/warmup` (and /livez, /startupz, /readyz) answer for a pod; the operator's
`--admin-url` is `http://HOST:PORT/{namespace}/{name}`.

What a pod's engine does is asked for by the annotations in engine.start_settings.ANNOTATIONS, which a user sets through
spec.podTemplate.annotations. They may change while the pod lives: the story then begins again.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from stubs.engine.answer import warmup
from stubs.engine.fault import FaultError
from stubs.engine.script import script
from stubs.engine.start import SETTING_INVALID, tell
from stubs.engine.start_settings import ANNOTATIONS, StartSettings
from stubs.engine.story import Story
from stubs.fleet_api import Api, Change, Pod

log = logging.getLogger("stubs.fleet")

LABEL = "graphpod.dev/inferenceservice"
SCRIPT = "stub.graphpod.dev/script"
CONFIG_KEY = "engine.json"

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a story is made from: other pods, configurations or settings have other stories."""

    uid: str
    config_map: str
    settings: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pod: Pod) -> Identity:
        annotations = pod["metadata"].get("annotations") or {}
        maps = [volume["configMap"]["name"] for volume in pod["spec"].get("volumes", ()) if "configMap" in volume]
        settings = tuple((key, annotations[key]) for key in ANNOTATIONS.values() if key in annotations)
        return cls(pod["metadata"]["uid"], maps[0] if maps else "", settings)


@dataclass(slots=True)
class Member:
    """One pod. `story` is None until its configuration was read; `began` (Unix time) while no container runs."""

    identity: Identity
    began: float | None
    story: Story | None = None
    config_hash: str = ""


class Fleet:
    """All pods, kept up to date by a watch, answered for over HTTP."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._members: dict[Name, Member] = {}
        self._configs: dict[Name, asyncio.Task[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self) -> None:
        """For ever."""
        async for change, pod in self._api.pods(LABEL):
            if change is Change.Restart:
                self._members.clear()
                continue
            name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if change is Change.Gone:
                self._members.pop(name, None)
                continue
            member, identity = self._members.get(name), Identity.of(pod)
            if member is not None and member.identity == identity:
                member.began = _began(pod)
                continue
            self._members[name] = Member(identity, _began(pod))
            task = asyncio.create_task(self._tell(self._members[name], pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, member: Member, pod: Pod) -> None:
        identity, namespace = member.identity, pod["metadata"]["namespace"]
        annotations = dict(identity.settings)
        try:
            config = await self._config(namespace, identity.config_map)
        except (aiohttp.ClientError, OSError, TimeoutError, KeyError) as error:
            log.error("pod %s/%s: ConfigMap %s: %s", namespace, pod["metadata"]["name"], identity.config_map, error)
            return
        try:
            settings = StartSettings.of(annotations, ANNOTATIONS)
            story = tell(config, settings.fault, settings.warmup_seconds(identity.uid))
        except FaultError as error:
            settings, story = StartSettings(), Story.refused(SETTING_INVALID, str(error))
        member.config_hash = hashlib.sha256(config).hexdigest()[:10]
        member.story = story
        scripted = script(story, settings.drain, pod["spec"]["containers"][0])
        if (pod["metadata"].get("annotations") or {}).get(SCRIPT) != scripted:
            try:
                await self._api.annotate(pod, SCRIPT, scripted)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.error("pod %s/%s: script not written: %s", namespace, pod["metadata"]["name"], error)

    async def _config(self, namespace: str, name: str) -> bytes:
        """Read once: the operator's are immutable, and many pods share one."""
        task = self._configs.get((namespace, name))
        if task is None or (task.done() and task.exception() is not None):
            task = asyncio.create_task(self._api.config_map(namespace, name, CONFIG_KEY))
            self._configs[namespace, name] = task
        return await task

    # --- the admin ports

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/{namespace}/{name}/{what:livez|startupz|readyz|warmup}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = request.match_info
        member = self._members.get((asked["namespace"], asked["name"]))
        if member is None or member.story is None or member.began is None:
            return web.Response(status=502, text="no engine runs there\n")
        story, at = member.story, max(0.0, time.time() - member.began)
        what = asked["what"]
        if story.silent(at) or (story.mute and what == "warmup"):
            await asyncio.Event().wait()  # until the client has had enough, which cancels this
        if what == "warmup":
            found = warmup(story, at, member.identity.uid, member.config_hash)
            return web.Response(status=found.status, body=found.body, headers=found.headers)
        fine = what == "livez" or story.ready(at) or (what == "startupz" and story.started(at))
        return web.Response(text="ok\n") if fine else web.Response(status=503, text=f"{story.scene(at).state}\n")


def _began(pod: Pod) -> float | None:
    """When the present run of the engine's container started."""
    statuses: list[dict[str, Any]] = pod.get("status", {}).get("containerStatuses") or [{}]
    running = (statuses[0].get("state") or {}).get("running")
    return datetime.fromisoformat(running["startedAt"]).timestamp() if running else None


async def serve(kubeconfig: Path, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT; prints the admin URL once it listens."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    async with Api.connected(kubeconfig) as api:
        fleet = Fleet(api)
        app = web.Application()
        app.add_routes(fleet.routes())
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0]
        print(f"http://{bound[0]}:{bound[1]}/{{namespace}}/{{name}}", flush=True)
        following = asyncio.create_task(fleet.follow())
        ended = asyncio.create_task(asked.wait())
        await asyncio.wait((following, ended), return_when=asyncio.FIRST_COMPLETED)
        await runner.cleanup()
        if following.done():
            following.result()
        following.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="stubs.fleet", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="FILE")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: a free one, which is printed")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(serve(options.kubeconfig, options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())

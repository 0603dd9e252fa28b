"""Orders to the pods' admin ports over HTTP."""

import aiohttp
import pytest
from aiohttp import web

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.admin_port import HttpAdminPort
from graphpod_operator.observe.warmup_poller import Unreachable
from graphpod_policy.http_limits import POD_UID_HEADER
from tests.unit.operator.objects import pod


async def test_an_order_names_the_uid_of_its_pod_and_one_that_another_pod_refuses_did_not_arrive() -> None:
    heard: list[tuple[str, str | None]] = []

    async def order(request: web.Request) -> web.Response:
        uid = request.headers.get(POD_UID_HEADER)
        heard.append((request.path_qs, uid))
        return web.Response(status=202 if uid == "uid-a" else 421, text="this is the pod of uid uid-a")

    app = web.Application()
    app.add_routes([web.post("/sleep", order)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found, earlier = (Pod.of(pod(name, status={"podIP": "127.0.0.1"})) for name in ("a", "b"))
        async with aiohttp.ClientSession() as session:
            port = HttpAdminPort(session, f"http://{{ip}}:{runner.addresses[0][1]}")
            await port.order(found, "/sleep?wait=0")
            with pytest.raises(Unreachable, match=r"pod b: .* answered 421: this is the pod of uid uid-a"):
                await port.order(earlier, "/sleep?wait=0")
        assert heard == [("/sleep?wait=0", found.uid), ("/sleep?wait=0", earlier.uid)]
    finally:
        await runner.cleanup()

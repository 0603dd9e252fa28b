"""Clusters with IPv6, alone or besides IPv4: Services of both families, and reading pods at an IPv6 address."""

import aiohttp
import pytest
from aiohttp import web

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.manager import health
from graphpod_operator.manager.dual_stack import listen
from graphpod_operator.observe.admin_port import HttpAdminPort
from graphpod_operator.telemetry.metrics import Meters
from tests.unit.operator.objects import planned, pod


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
async def test_a_pods_admin_port_is_read_at_an_address_of_either_family(ip: str) -> None:
    hosts: list[str] = []

    async def warmup(request: web.Request) -> web.Response:
        hosts.append(request.host)
        return web.Response(text="{}")

    app = web.Application()
    app.add_routes([web.get("/warmup", warmup)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        bound = listen(0)
        port = bound.getsockname()[1]
        await web.SockSite(runner, bound).start()
        found = Pod.of(pod(status={"podIP": ip}))
        async with aiohttp.ClientSession() as session:
            assert await HttpAdminPort(session, f"http://{{ip}}:{port}").warmup(found) == b"{}"
        assert hosts == [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_operators_health_answers_over_either_family(host: str) -> None:
    runner = await health.serve(0, Meters.make(), unhealthy=lambda: None, unready=lambda: "not yet")
    try:
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:
            for path, status in (("healthz", 200), ("readyz", 503), ("metrics", 200)):
                async with session.get(f"http://{host}:{port}/{path}") as response:
                    assert response.status == status
    finally:
        await runner.cleanup()


def test_the_service_has_both_families_where_the_cluster_does() -> None:
    (service,) = [child.body for child in planned().children if child.resource is Resource.Service]
    assert service["spec"]["ipFamilyPolicy"] == "PreferDualStack"

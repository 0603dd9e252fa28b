"""The webhook: what kopf answers over it, and a certificate that may be renewed under it."""

import asyncio
import gc
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from kopf._core.reactor.inventory import ResourceMemory

from graphpod_operator.explain.admission_warnings import ALL
from graphpod_operator.handlers import admission_server, kopf_operator
from graphpod_operator.handlers.admission_server import BODY_MAX, PATH, AdmissionServer, Certificate
from graphpod_operator.handlers.kopf_operator import Serving, operate
from graphpod_operator.kube.resources import Resource
from graphpod_operator.manager.dual_stack import listen
from graphpod_operator.manager.kopf_thread import KopfThread
from graphpod_operator.watch.service_watch import ServiceWatch
from stubs.certificate import make
from tests.ports import free_port
from tests.unit.operator.handlers.apiserver import ApiServer
from tests.unit.operator.objects import inference_service

SERVICES = Resource.InferenceService


def renew(folder: Path) -> None:
    certificate = make(["IP:127.0.0.1"])
    (folder / "tls.crt").write_bytes(certificate.certificate)
    (folder / "tls.key").write_bytes(certificate.key)


def review(new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    request = {
        "uid": "u",
        "resource": {"group": SERVICES.group, "version": SERVICES.version, "resource": SERVICES.plural},
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "someone"},
        "object": new,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@dataclass
class Warner:
    """kopf with its webhook, and the certificate's folder."""

    folder: Path
    port: int
    session: aiohttp.ClientSession

    async def post(self, body: bytes) -> tuple[int, str]:
        trust = ssl.create_default_context(cafile=str(self.folder / "tls.crt"))
        async with self.session.post(f"https://127.0.0.1:{self.port}{PATH}", data=body, ssl=trust) as answer:
            return answer.status, await answer.text()

    async def review(self, new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
        status, said = await self.post(json.dumps(review(new, old)).encode())
        assert status == 200, said
        response: dict[str, Any] = json.loads(said)["response"]
        return response

    async def listens(self) -> bool:
        try:
            return (await self.post(b""))[0] == 400
        except aiohttp.ClientConnectionError:
            return False

    def shown(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=60)


@pytest.fixture
async def warner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Warner]:
    monkeypatch.setattr(admission_server, "RELOAD_SECONDS", 0.01)
    renew(tmp_path)
    port = free_port()
    async with ApiServer().serving() as server, aiohttp.ClientSession() as session:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        serving = Serving(AdmissionServer(port, Certificate(tmp_path), listen, ALL))
        warner = Warner(tmp_path, port, session)
        kopf = KopfThread(partial(operate, serving, ()), watch(), lambda: None)
        kopf.start()
        async with asyncio.timeout(60):
            while not await warner.listens():  # noqa: ASYNC110  its port opens on another thread
                await asyncio.sleep(0.05)
        yield warner
        await kopf.leave()


def watch() -> ServiceWatch:
    """One that may begin, and sees nothing."""

    async def served() -> bool:
        return True

    nothing: Any = SimpleNamespace(since=lambda kind, namespace: 1)
    watch = ServiceWatch(nothing, (), listed=lambda: None, failed=lambda: None, served=served)
    watch.begin()
    return watch


async def test_who_writes_a_service_is_warned_and_never_refused(warner: Warner) -> None:
    response = await warner.review(inference_service(engine={"deterministic": True}))
    assert (response["uid"], response["allowed"]) == ("u", True)
    assert response["warnings"][0].startswith("will not run until this is fixed: spec.engine.deterministic: ")
    same = inference_service()
    assert "warnings" not in await warner.review(same, same)


async def test_a_fault_of_ours_refuses_nobody(
    warner: Warner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """kopf refuses what its handler fails at."""

    def broken(*_: object) -> list[str]:
        raise KeyError("spec")

    monkeypatch.setattr(kopf_operator, "warnings_of", broken)
    assert (await warner.review(inference_service())) == {"uid": "u", "allowed": True}
    assert "no warnings: a fault of the operator" in caplog.text


async def test_a_spec_that_is_too_deep_or_too_large_is_told_so(warner: Warner) -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"a": deep}
    service = inference_service(podTemplate={"volumes": [{"name": "deep", "csi": deep}]})
    (told,) = (await warner.review(service, inference_service()))["warnings"]
    assert told.startswith("will not run until this is fixed: spec.podTemplate.volumes[0].csi")
    assert "nested more than 32 levels" in told
    large = inference_service(podTemplate={"annotations": {f"a{n}": "x" * 300 for n in range(5000)}})
    assert 2**20 < len(json.dumps(large)) < BODY_MAX
    (told,) = (await warner.review(large, inference_service()))["warnings"]
    assert "more than 4096 values" in told


async def test_reviews_leave_nothing_behind(warner: Warner) -> None:
    """Whoever reaches the port may send any number, each of another object."""

    def kept() -> int:
        gc.collect()
        return sum(isinstance(one, ResourceMemory) for one in gc.get_objects())

    before = kept()
    for number in range(5):
        service = inference_service()
        service["metadata"]["uid"] = f"forged-{number}"
        await warner.review(service, inference_service(replicas=2))
    assert kept() == before


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"[" * 5000,
        json.dumps({"request": {"uid": 1}}).encode(),
        json.dumps(review(inference_service()) | {"request": {"uid": "u"}}).encode(),
        json.dumps(review({"spec": {}})).encode(),
        json.dumps(review(inference_service())).replace(SERVICES.plural, "pods").encode(),
    ],
    ids=["cut", "list", "deep", "uid", "bare", "no metadata", "pods"],
)
async def test_what_is_no_review_of_a_service_is_answered_with_400(warner: Warner, body: bytes) -> None:
    assert (await warner.post(body))[0] == 400


async def test_a_renewed_certificate_is_taken_without_a_restart_once_it_is_whole(
    warner: Warner, caplog: pytest.LogCaptureFixture
) -> None:
    before = await asyncio.to_thread(warner.shown)
    (warner.folder / "tls.crt").write_bytes(make(["IP:127.0.0.1"]).certificate)
    async with asyncio.timeout(60):
        while "certificate not read" not in caplog.text:  # noqa: ASYNC110  it is looked at on another thread
            await asyncio.sleep(0.01)
    assert await asyncio.to_thread(warner.shown) == before
    renew(warner.folder)
    async with asyncio.timeout(60):
        while await asyncio.to_thread(warner.shown) == before:
            pass


def test_without_a_certificate_or_a_port_the_operator_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        AdmissionServer(free_port(), Certificate(tmp_path), listen, ALL).check()
    renew(tmp_path)
    with listen(0) as taken, pytest.raises(OSError, match="cannot listen on port"):
        AdmissionServer(taken.getsockname()[1], Certificate(tmp_path), listen, ALL).check()

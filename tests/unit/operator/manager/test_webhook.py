"""The webhook's port: TLS, one path, and a certificate that may be renewed under it."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.manager import webhook
from graphpod_operator.manager.webhook import PATH, Webhook, warning
from stubs.certificate import make
from tests.api.operator.process import free_port


def renew(folder: Path) -> None:
    certificate = make(["IP:127.0.0.1"])
    (folder / "tls.crt").write_bytes(certificate.certificate)
    (folder / "tls.key").write_bytes(certificate.key)


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)


async def test_a_renewed_certificate_is_taken_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "RELOAD_SECONDS", 0.01)
    renew(tmp_path)
    port = free_port()
    async with warning(Webhook(port, tmp_path), AllowLists()):
        before = await asyncio.to_thread(shown, port)
        renew(tmp_path)
        async with asyncio.timeout(10):
            while await asyncio.to_thread(shown, port) == before:
                pass


async def test_what_is_no_review_is_answered_with_400(tmp_path: Path) -> None:
    renew(tmp_path)
    port = free_port()
    trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    async with warning(Webhook(port, tmp_path), AllowLists()), aiohttp.ClientSession() as session:
        for body in (b"{", b"[]", b"[" * 5000):
            async with session.post(f"https://127.0.0.1:{port}{PATH}", data=body, ssl=trust) as answer:
                assert answer.status == 400


async def test_without_a_certificate_the_operator_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        async with warning(Webhook(free_port(), tmp_path), AllowLists()):
            pass


async def test_without_a_webhook_nothing_is_served() -> None:
    async with warning(None, AllowLists()):
        pass

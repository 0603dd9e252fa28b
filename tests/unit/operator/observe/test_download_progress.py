"""Reports of downloads: read in turn, kept while a pod is silent, and believed only as far as they can be."""

import asyncio
from collections.abc import Callable

import pytest

from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.download_progress import POLL_SECONDS, DownloadProgress
from graphpod_operator.observe.warmup_poller import Unreachable
from graphpod_operator.status.download_findings import progress
from tests.unit.operator.downloads import job_pod
from tests.unit.operator.world import StillClock

BODY = b'{"phase": "Downloading", "bytes": 5, "totalBytes": 10, "bytesPerSecond": 1, "secondsLeft": 5}'


class Port:
    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.answer, self.reads = answer, 0

    async def progress(self, pod: Pod) -> bytes:
        self.reads += 1
        return self.answer()


def pod() -> Pod:
    raw = job_pod("job-uid")
    return Pod.of({**raw, "metadata": {**raw["metadata"], "uid": "u", "resourceVersion": "1"}})


def silent() -> bytes:
    raise Unreachable("no answer")


async def test_services_that_share_a_download_share_its_reads() -> None:
    port, clock = Port(lambda: BODY), StillClock()
    reports = DownloadProgress(port, clock)
    assert (await reports.read([pod()]))["u"].done == 5
    assert (await reports.read([pod()]))["u"].done == 5
    assert port.reads == 1
    clock.now += POLL_SECONDS
    await reports.read([pod()])
    assert port.reads == 2


async def test_a_pod_that_falls_silent_keeps_its_last_report() -> None:
    port, clock = Port(lambda: BODY), StillClock()
    reports = DownloadProgress(port, clock)
    await reports.read([pod()])
    port.answer = silent
    clock.now += POLL_SECONDS
    assert (await reports.read([pod()]))["u"].done == 5


async def test_a_slow_pod_holds_up_nobody() -> None:
    class Slow(Port):
        async def progress(self, pod: Pod) -> bytes:
            await asyncio.sleep(3600)
            return b""

    reports = DownloadProgress(Slow(silent), StillClock())
    assert await reports.read([pod()]) == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"7", b"{}", b'{"phase": "Downloading", "bytes": -1}', b'{"phase": 7}', b"[" * 10_000, b"\xff"],
)
def test_what_no_fetcher_says_is_no_report(body: bytes) -> None:
    assert FetchReport.read(body) is None


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (FetchReport("Downloading", done=0, total_bytes=300 * 2**20), "0.0 of 300.0 MiB, 0 MB/s"),
        (FetchReport("Downloading", None, 2**30, 2**31, 10**8, 10), "1.0 of 2.0 GiB, 100 MB/s, about 10 s left"),
        (FetchReport("Downloading", None, 2**30, 2**31, 10**6, 1073), "1.0 of 2.0 GiB, 1 MB/s, about 17 min left"),
        (FetchReport("Verifying", done=2**31), "verifying, 2.0 GiB so far"),
        (FetchReport("Resolving"), "resolving"),
    ],
)
def test_progress_in_words(report: FetchReport, words: str) -> None:
    assert progress(report) == words

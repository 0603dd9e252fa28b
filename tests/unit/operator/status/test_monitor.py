"""MonitorReady is True only while a Prometheus scrapes the pods, and a quiet service is not written for it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_poller import SCRAPE_POLL_MOST, SCRAPE_POLL_SECONDS
from graphpod_operator.observe.warmup_report import FRESH_SECONDS
from graphpod_operator.status.optional_findings import GRACE_SECONDS, find_monitor
from tests.unit.operator.objects import NAMESPACE, inference_service, planned, pod, report, rollout
from tests.unit.operator.told import reading
from tests.unit.operator.world import HASH, KEY, World

NOW = datetime(2026, 1, 1, 12)
OLD, NEW = GRACE_SECONDS + 1, GRACE_SECONDS - 1
MONITOR = Resource.PodMonitor, NAMESPACE, "demo"


def before(reason: str, seconds: float) -> dict[str, str]:
    """The condition as it was written so long ago."""
    return {"reason": reason, "lastTransitionTime": f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"}


def scrapes(listening: float, last: float | None) -> dict[str, Any]:
    return {"scrapes": {"listeningSeconds": listening, "lastSecondsAgo": last}}


def found(written: dict[str, str] | None, *pods: dict[str, Any], **spec: Any) -> str:
    """The reason for pods with these reports."""
    names = [f"demo-abc-{number}" for number, _ in enumerate(pods)]
    seen = Observed(
        rollout(),
        tuple(Pod.of(pod(name, config_hash=HASH)) for name in names),
        {f"uid-{name}": reading(name, **one) for name, one in zip(names, pods, strict=True)},
        frozenset({Resource.PodMonitor}),
    )
    return find_monitor(
        planned(monitoring={"enabled": True}, **spec), seen, written, f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    ).reason.name


@pytest.mark.parametrize(
    ("written", "pods", "reason"),
    [
        (None, [], "ScrapePending"),
        (None, [{}], "ScrapeUnknown"),
        (None, [scrapes(5.0, None)], "ScrapePending"),
        (None, [scrapes(OLD, None)], "ScrapePending"),
        (before("ScrapePending", NEW), [scrapes(OLD, None)], "ScrapePending"),
        (before("ScrapePending", OLD), [scrapes(NEW, None)], "ScrapePending"),
        (before("ScrapePending", OLD), [scrapes(OLD, None)], "NotScraped"),
        (before("ScrapePending", 1), [scrapes(5.0, 2.0)], "Scraped"),
        (before("NotScraped", OLD), [scrapes(OLD, 2.0)], "Scraped"),
        (before("NotScraped", OLD), [scrapes(5.0, None)], "NotScraped"),
        (before("Scraped", OLD), [scrapes(5.0, None)], "Scraped"),
        (before("Scraped", OLD), [], "Scraped"),
        (before("Scraped", OLD), [scrapes(OLD, None), scrapes(OLD, FRESH_SECONDS)], "Scraped"),
        (before("Scraped", NEW), [scrapes(5000.0, FRESH_SECONDS + 1)], "NotScraped"),
        ({"reason": "ScrapePending", "lastTransitionTime": "yesterday"}, [scrapes(OLD, None)], "ScrapePending"),
    ],
)
def test_the_reason_follows_the_last_scrape_and_new_pods_have_their_time(
    written: dict[str, str] | None, pods: list[dict[str, Any]], reason: str
) -> None:
    assert found(written, *pods) == reason


def test_a_suspended_service_is_not_said_to_be_scraped() -> None:
    assert found(before("Scraped", OLD), suspend=True) == "ScrapePending"


@pytest.fixture
async def served() -> World:
    """A Ready pod of a service with a PodMonitor, which nothing has scraped yet."""
    made = World()
    made.cluster.put(Resource.InferenceService, inference_service(monitoring={"enabled": True}))
    await made.relist()
    made.discovery.served.add(Resource.PodMonitor)
    await made.optional.look()
    await made.reconcile()
    made.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    await made.relist()
    made.ports.report = report(config_hash=HASH, **scrapes(5.0, None))
    return made


async def test_a_pod_is_read_slowly_until_it_is_scraped_and_then_no_more(served: World) -> None:
    asked = 0

    async def counted(one: Pod, of: Any = served.ports.warmup) -> bytes:
        nonlocal asked
        asked += 1
        return await of(one)

    served.ports.warmup = counted  # type: ignore[method-assign]
    pauses = []
    for _ in range(7):
        pause = await served.reconcile()
        assert served.condition("MonitorReady")[1] == "ScrapePending"
        assert pause is not None
        at = asked
        await served.reconcile()  # another cause for a look reads no pod
        assert asked == at
        pauses.append(round(pause))
        served.clock.now += pause
    assert pauses[0] <= SCRAPE_POLL_SECONDS
    assert max(pauses) <= SCRAPE_POLL_MOST
    assert pauses == sorted(pauses)
    assert asked == 7

    served.ports.report = report(config_hash=HASH, **scrapes(600.0, 3.0))
    assert await served.reconcile() is None, "a service that is scraped needs no further look"
    assert served.condition("MonitorReady") == ("True", "Scraped")
    assert asked == 8
    served.cluster.writes.clear()
    served.clock.now += 1000
    await served.reconcile()
    assert asked == 8
    assert served.cluster.writes == []


async def test_a_scrape_that_ended_is_found_at_a_resync_and_said_once(served: World) -> None:
    served.ports.report = report(config_hash=HASH, **scrapes(600.0, 3.0))
    await served.reconcile()
    served.ports.report = report(config_hash=HASH, **scrapes(9000.0, FRESH_SECONDS + 1))
    served.reconciler.reread([KEY])
    await served.reconcile()
    assert served.condition("MonitorReady") == ("False", "NotScraped")
    assert "spec.monitoring.labels" in served.message("MonitorReady")
    served.cluster.writes.clear()
    served.clock.now += SCRAPE_POLL_MOST
    served.ports.report = report(config_hash=HASH, **scrapes(9300.0, FRESH_SECONDS + 301))
    await served.reconcile()
    assert served.cluster.writes == []


async def test_the_next_operator_says_the_same_at_once(served: World) -> None:
    served.ports.report = report(config_hash=HASH, **scrapes(600.0, 3.0))
    await served.reconcile()
    successor = World(served.cluster, served.ports)
    successor.discovery.served.add(Resource.PodMonitor)
    await successor.relist()
    await successor.optional.look()
    served.cluster.writes.clear()
    await successor.reconcile()
    assert served.cluster.writes == []


async def test_labels_of_the_service_override_those_of_the_installer_and_never_the_operators(served: World) -> None:
    served.reconciler = served.make_reconciler(monitor_labels={"release": "stack", "team": "a", "graphpod.dev/x": "y"})
    served.cluster.put(
        Resource.InferenceService, inference_service(monitoring={"enabled": True, "labels": {"team": "b"}})
    )
    await served.relist()
    await served.reconcile()
    labels = served.cluster.objects[MONITOR]["metadata"]["labels"]
    assert labels | {"release": "stack", "team": "b", "graphpod.dev/inferenceservice": "demo"} == labels

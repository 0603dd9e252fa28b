"""A user who knows only Helm and PromQL: the chart on real nodes with monitoring, an example, a load, and boards.

Prometheus is configured by monitors alone: the chart's, the operator's, and that of an exporter for GPUs. The load
meets a ladder that is too short (fallbacks), a KV cache that is too small (pages in host memory and in files), a
change of the service (a rollout), and a capture that fails then (a degradation). At the end the service sleeps and
wakes. `make boards` keeps what each step printed and what each panel showed, and draws every board.
"""

import json
import math
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from demo.answer import address, body
from demo.chart import CHART, RELEASE, wait_operator
from demo.chart import NAMESPACE as SYSTEM
from demo.local import Testbed
from demo.service import EXAMPLE, NAME, NAMESPACE, wait_condition, wait_rollout
from graphpod_operator.api.names import SLEEP_ANNOTATION
from monitoring.boards import BOARDS, fleet
from monitoring.boards.asking import Span, marked
from monitoring.boards.picture import data, draw
from stubs.collector import Collector
from testbed import Cluster
from testbed.binaries.foreign import Foreign
from testbed.binaries.golang import build
from tests.api.operator.process import serve
from tests.e2e.monitoring import gpu_exporter
from tests.e2e.monitoring.stack import own_address
from tests.e2e.monitoring.story import Story, shown
from tests.eventually import Eventually
from tests.monitoring import dcgm, selected
from tests.monitoring.engine import OF_RANKS, WOKEN, load, returning
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.selected import LABELS
from tests.places import Manifest, Place
from tests.traffic import asking

pytestmark = pytest.mark.slow
PICTURES = "GRAPHPOD_BOARDS"
"""Environment variable: the folder for pictures."""
SCRAPE_SECONDS = 2
START_SECONDS = 600.0
VALUES = (
    "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true",
    *(f"--set-json=monitoring.{one}.labels={json.dumps(LABELS)}" for one in ("podMonitors", "serviceMonitor", "rules")),
)
# the graph of two requests: with three drafts each it has eight rows
FAULT = {"name": "GRAPHPOD_FAULT", "value": "capture:decode:8"}
FAILURES = "sum by (phase, reason) (graphpod_graph_capture_failures_total) > 0"
PODS = "count(count by (pod) (last_over_time(graphpod_build_info[1h])))"
COPIED = "sum by (direction) (graphpod_host_cache_copied_bytes_total) > 0"
MOVED = "sum by (direction) (graphpod_host_cache_file_moved_bytes_total) > 0"
PAGES = "kv-pages"
"""The volume for files of KV pages."""
NOTES = {fleet.GPU.title: "a fixture with values of another GPU: these pods run on a CPU"}


def example(collector: str, *env: Manifest) -> Manifest:
    """examples/smollm2.yaml with monitoring, drafts, traces, a host tier, files and sleep. Its decode ladder is
    shorter than its load, its longest prefill graph has no use, its KV cache holds six long prompts and its host tier
    two, and an old pod goes after the new one has come: two pods then share two cores.
    """
    found: Manifest = yaml.safe_load(EXAMPLE.read_text())
    spec = found["spec"]
    drafts = {"method": "Ngram", "steps": 3, "maxBatch": 4}
    spec["monitoring"] = {"enabled": True}
    spec["engine"] |= {"maxBatch": 4, "speculative": drafts, "tracing": {"endpoint": collector}}
    files = {"path": f"/{PAGES}", "size": "512Mi"}
    spec["engine"] |= {"kvCacheMemory": "128Mi", "hostCache": {"size": "64Mi", "file": files}, "sleep": True}
    volumes, mounts = [{"name": PAGES, "emptyDir": {}}], [{"name": PAGES, "mountPath": f"/{PAGES}"}]
    spec["podTemplate"] = {"volumes": volumes, "volumeMounts": mounts, "env": list(env)}
    spec["graph"] |= {"sizes": {"prefill": [16, 64, 128, 256, 1024], "decode": [1, 2]}}
    spec["resources"]["limits"]["cpu"] = "1"
    spec["rollout"] = {"strategy": "Surge"}
    return found


def values(prometheus: Prometheus, expr: str) -> str:
    """The results of an expression, a line each: labels and value."""
    found = prometheus.query_values(expr)
    return "\n".join(" ".join((*map("=".join, labels.items()), f"{value:g}")) for labels, value in found)


@pytest.fixture(scope="module")
def story(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The steps of docs/how-to/monitor.md, and what every panel shows then."""
    build(["prometheus", "prometheusconfig", "helm4"])
    place, folder = Place(installed, NAMESPACE), tmp_path_factory.mktemp("prometheus")
    for foreign in (Foreign.PodMonitor, Foreign.ServiceMonitor, Foreign.PrometheusRule):
        serve(place, foreign)
    host = own_address(installed)
    with Collector(host=host) as collector, dcgm.serving(host) as gpus:
        manifests = yaml.safe_dump_all(gpu_exporter.objects(gpus.address))
        installed.kubectl("apply", "--server-side", "-f", "-", input=manifests)
        yield from _told(place, folder, collector, gpus)
    place.remove(NAME)


def _told(place: Place, folder: Path, collector: Collector, gpus: dcgm.Exporter) -> Iterator[Story]:
    cluster, made = place.cluster, Story()
    eventually = Eventually(lambda: [cluster])

    def have_gpus() -> None:
        gpus.have([(NAMESPACE, pod["metadata"]["name"]) for pod in place.pods(NAME)])

    def upgrade() -> str:
        helm = Testbed(cluster).helm
        said = helm("upgrade", RELEASE, str(CHART), "--namespace", SYSTEM, "--reuse-values", *VALUES)
        wait_operator(cluster)
        return said.partition("NOTES:")[0]

    def apply(manifest: Manifest) -> str:
        return cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(manifest))

    def first() -> str:
        said = apply(example(collector.url))
        wait_condition(cluster, "Ready", lambda _: None)
        wait_rollout(cluster)
        have_gpus()
        return said + cluster.kubectl("get", "gisvc", NAME, "-n", NAMESPACE)

    words = ("helm", "upgrade", RELEASE, "charts/graphpod", "--namespace", SYSTEM, "--reuse-values", *VALUES)
    made.step(shlex.join(words), upgrade)
    applied = f"kubectl apply --server-side -f {NAME}.yaml; kubectl get gisvc {NAME} -n {NAMESPACE}"
    made.step(applied, first)
    chosen = eventually(lambda: (now := selected.configure(cluster, folder, SCRAPE_SECONDS)).pod_monitors and now)
    ours = f"{SYSTEM}/graphpod-operator"
    assert chosen.service_monitors == (f"{gpu_exporter.NAMESPACE}/{gpu_exporter.NAME}", ours)
    assert (chosen.rules, chosen.rejected) == ((ours,), ())
    with selected.prometheus(folder) as prometheus:
        eventually(lambda: len(prometheus.query("up == 1")) == 3, timeout=90)
        assert made.step("sum by (job) (up)", lambda: values(prometheus, "sum by (job) (up)")).count(" 1") == 3
        began = time.time()

        def span() -> Span:
            now = time.time()
            return Span(now, math.ceil(now - began), 4 * SCRAPE_SECONDS)

        eventually(lambda: time.time() > began + 4 * SCRAPE_SECONDS)
        made.quiet = list(shown(prometheus.url, span()))
        made.moment("three clients ask")
        wanted = "sum(graphpod_requests_total)"

        def asked() -> str:
            seen = load(address(cluster))
            eventually(lambda: prometheus.value(wanted) == seen.ended, timeout=60)
            return f"{prometheus.value(wanted):g}"

        made.step(wanted, asked)
        fallbacks = "sum by (phase, reason) (graphpod_graph_fallbacks_total) > 0"
        assert "SizeAboveLadder" in made.step(fallbacks, lambda: values(prometheus, fallbacks))

        def second() -> str:
            made.moment("the service is changed, chats of 8 tokens")
            said = apply(example(collector.url, FAULT))
            with asking(f"{address(cluster)}/v1/chat/completions", body() | {"max_tokens": 8}) as traffic:
                eventually(lambda: len(place.pods(NAME)) == 2, timeout=60)
                have_gpus()
                eventually(place.reached("GraphsCaptured", "True", "Degraded", NAME), timeout=START_SECONDS)
                wait_rollout(cluster)
                eventually(lambda: len(place.pods(NAME)) == 1, timeout=120)
                have_gpus()
            print(traffic.told())
            assert traffic.answered() > 0
            return said + cluster.kubectl("get", "gisvc", NAME, "-n", NAMESPACE)

        made.step(applied, second)
        made.moment("three clients ask again")
        load(address(cluster))
        made.moment("long prompts for one token, each twice")
        returning(address(cluster))

        def slept() -> str:
            made.moment("asleep, by the annotation")
            place.kubectl("annotate", "gisvc", NAME, f"{SLEEP_ANNOTATION}=true")
            eventually(place.reached("Asleep", "True", "Asleep", NAME), timeout=START_SECONDS)
            said = cluster.kubectl("get", "gisvc", NAME, "-n", NAMESPACE)
            made.moment("woken")
            place.kubectl("annotate", "gisvc", NAME, f"{SLEEP_ANNOTATION}-")
            wait_condition(cluster, "Ready", lambda _: None)
            eventually(lambda: prometheus.value(WOKEN) == 1, timeout=60)
            return said

        made.step(f"kubectl annotate gisvc {NAME} {SLEEP_ANNOTATION}=true", slept)
        for expr in (
            COPIED,
            MOVED,
            FAILURES,
            "sum by (phase, planned, effective) (graphpod_operator_policy_degradations_total) > 0",
            PODS,
            fallbacks,
            "sum by (result) (graphpod_trace_spans_total) > 0",
        ):
            assert made.step(expr, lambda expr=expr: values(prometheus, expr))
        eventually(lambda: prometheus.value("sum(graphpod_requests_running)") == 0)
        whole = span()
        made.panels = list(shown(prometheus.url, whole))
        made.marks = marked(prometheus.url, BOARDS[0], whole)
        made.write()
        if pictures := os.environ.get(PICTURES):
            for board in BOARDS:
                found = data(prometheus.url, board, whole)
                found = replace(found, marks=sorted((*found.marks, *made.moments)))
                draw(board, found, whole, Path(pictures) / f"{board.name}.png", NOTES)
        yield made


def test_every_query_has_data_after_fallbacks_a_rollout_a_failed_capture_a_degradation_and_a_sleep(
    story: Story,
) -> None:
    assert [(one.board, one.panel) for one in story.panels if not one.filled] == OF_RANKS


def test_a_panel_that_is_empty_before_any_request_says_why(story: Story) -> None:
    empty = [one for one in story.quiet if not one.filled]
    assert empty != []
    assert [one for one in empty if not one.why_empty.startswith("Empty")] == []


def test_the_rollout_is_marked(story: Story) -> None:
    whats = [what for _, what in story.marks]
    (started,) = [what.removeprefix("start of ") for what in whats if what.startswith(f"start of {NAMESPACE}/{NAME}-")]
    assert whats == [f"start of {started}", f"{started} is Ready"]


def test_the_fault_and_the_rollout_are_in_the_numbers(story: Story) -> None:
    said = {step.command: step.output for step in story.steps}
    assert "phase=decode reason=CaptureFailed" in said[FAILURES]
    assert said[PODS] == "2"
    assert "direction=store" in said[COPIED]
    assert "direction=load" in said[COPIED]
    assert "direction=write" in said[MOVED]
    assert "direction=read" in said[MOVED]

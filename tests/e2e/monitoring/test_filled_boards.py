"""A user who knows only Helm and PromQL: the chart on real nodes with monitoring, an example, a load, and boards.

Prometheus is configured by the chart's and the operator's own monitors alone. `make boards` keeps what each step
printed and what each panel showed.
"""

import json
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
import yaml

from demo.answer import address
from demo.chart import CHART, RELEASE, wait_operator
from demo.chart import NAMESPACE as SYSTEM
from demo.local import Testbed
from demo.service import EXAMPLE, NAME, NAMESPACE, wait_condition, wait_rollout
from monitoring.boards import BOARDS, fleet, requests
from monitoring.boards.asking import Span, answer
from testbed import Cluster
from testbed.binaries.foreign import Foreign
from testbed.binaries.golang import build
from tests.api.operator.process import serve
from tests.eventually import Eventually
from tests.monitoring import selected
from tests.monitoring.engine import load
from tests.monitoring.selected import LABELS
from tests.places import Place

pytestmark = pytest.mark.slow
RESULTS = "GRAPHPOD_FILLED"
"""Environment variable: the file for what was seen."""
SCRAPE_SECONDS = 2
VALUES = (
    "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true",
    *(f"--set-json=monitoring.{one}.labels={json.dumps(LABELS)}" for one in ("podMonitors", "serviceMonitor", "rules")),
)
NOT_HERE = {panel.title for section in (fleet.GPU, requests.DRAFTS) for panel in section.panels}
NOT_HERE |= {"Spans of traced requests, by result"}
"""Panels that need a GPU, or settings that the example does not have: their descriptions say so."""


@dataclass(frozen=True)
class Step:
    """What a user runs, what it printed, and its seconds."""

    command: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Shown:
    """Series of each query of a panel."""

    board: str
    panel: str
    series: list[int]
    why_empty: str


@dataclass
class Story:
    """Everything in its order."""

    steps: list[Step] = field(default_factory=list)
    panels: list[Shown] = field(default_factory=list)

    def step(self, command: str, work: Callable[[], object]) -> None:
        began = time.monotonic()
        said = str(work() or "").strip()
        self.steps.append(Step(command, said, round(time.monotonic() - began, 1)))
        print(f"\n$ {command}\n{said}\n{self.steps[-1].seconds} s", flush=True)
        self.write()

    def write(self) -> None:
        if path := os.environ.get(RESULTS):
            filled = sum(all(one.series) for one in self.panels)
            head = {"date": time.strftime("%Y-%m-%d"), "total": len(self.panels), "filled": filled}
            Path(path).write_text(json.dumps({**head, **asdict(self)}, indent=2) + "\n")


@pytest.fixture(scope="module")
def story(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The steps of docs/how-to/monitor.md, and what every panel shows then."""
    build(["prometheus", "prometheusconfig", "helm4"])
    made, folder = Story(), tmp_path_factory.mktemp("prometheus")
    eventually = Eventually(lambda: [installed])
    place = Place(installed, NAMESPACE)
    for foreign in (Foreign.PodMonitor, Foreign.ServiceMonitor, Foreign.PrometheusRule):
        serve(place, foreign)

    def upgrade() -> str:
        helm = Testbed(installed).helm
        said = helm("upgrade", RELEASE, str(CHART), "--namespace", SYSTEM, "--reuse-values", *VALUES)
        wait_operator(installed)
        return said.partition("NOTES:")[0]

    words = ("helm", "upgrade", RELEASE, "charts/graphpod", "--namespace", SYSTEM, "--reuse-values", *VALUES)
    made.step(shlex.join(words), upgrade)
    example = yaml.safe_load(EXAMPLE.read_text())
    example["spec"]["monitoring"] = {"enabled": True}

    def apply() -> str:
        said = installed.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(example))
        wait_condition(installed, "Ready", lambda _: None)
        wait_rollout(installed)
        return said + installed.kubectl("get", "gisvc", NAME, "-n", NAMESPACE)

    made.step(f"kubectl apply --server-side -f {NAME}.yaml; kubectl get gisvc {NAME} -n {NAMESPACE}", apply)
    chosen = eventually(lambda: (now := selected.configure(installed, folder, SCRAPE_SECONDS)).pod_monitors and now)
    assert (chosen.service_monitors, chosen.rules) == ((f"{SYSTEM}/graphpod-operator",),) * 2
    assert chosen.rejected == ()
    with selected.prometheus(folder) as prometheus:

        def scraped() -> str:
            found = eventually(
                lambda: len(jobs := prometheus.get("query?query=up")["result"]) == 2 and jobs, timeout=90
            )
            return "\n".join(f"{one['metric']['job']} {one['value'][1]}" for one in found)

        made.step("up", scraped)
        assert [line.split()[1] for line in made.steps[-1].output.splitlines()] == ["1", "1"]
        began = time.time()
        wanted = "sum(graphpod_requests_total)"

        def asked() -> str:
            seen = load(address(installed))
            eventually(lambda: prometheus.value(wanted) == seen.ended, timeout=60)
            return f"{prometheus.value(wanted):g}"

        made.step(wanted, asked)
        now = time.time()
        span = Span(now, math.ceil(now - began), 4 * SCRAPE_SECONDS)
        for board in BOARDS:
            for panel in board.panels():
                series = [len(answer(prometheus.url, board, panel, query, span)) for query in panel.queries]
                why = "" if all(series) else panel.quiet
                made.panels.append(Shown(board.name, panel.title, series, why))
        made.write()
        yield made
    place.remove(NAME)


def test_every_panel_that_this_machine_can_fill_has_data(story: Story) -> None:
    empty = {one.panel for one in story.panels if not all(one.series)}
    assert empty == NOT_HERE


def test_an_empty_panel_says_why(story: Story) -> None:
    assert all(one.why_empty.startswith("Empty") for one in story.panels if not all(one.series))

"""A Prometheus on loopback, with fixed targets and our rules."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from monitoring.rules.file import render
from tests.eventually import Eventually
from tests.ports import free_port

SCRAPE_SECONDS = 1


@dataclass(frozen=True)
class Target:
    """What is scraped, with the labels that a PodMonitor or ServiceMonitor adds."""

    job: str
    address: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Prometheus:
    url: str

    def get(self, path: str) -> Any:
        """The data of an answer of its API."""
        return self.plain(f"api/v1/{path}")["data"]

    def plain(self, path: str) -> Any:
        """An answer in JSON."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """Any answer."""
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=10) as reply:
            found: str = reply.read().decode()
        return found

    def scraped(self, number: int) -> bool:
        """Whether so many targets answer; it finds them seconds after its start."""
        targets = self.get("targets")["activeTargets"]
        assert [one["lastError"] for one in targets if one["health"] == "down"] == []
        return [one["health"] for one in targets] == ["up"] * number

    def query(self, expr: str) -> list[dict[str, str]]:
        """The labels of the results of an expression, now."""
        return [labels for labels, _ in self.query_values(expr)]

    def query_values(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of the results of an expression, now."""
        found = self.get(f"query?{urllib.parse.urlencode({'query': expr})}")["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expr: str) -> float:
        """Of an expression with one result, now; 0 while it has none."""
        found = self.query_values(expr)
        return found[0][1] if found else 0.0


def configuration(targets: Sequence[Target]) -> str:
    jobs = [
        {
            "job_name": target.job,
            "honor_labels": True,
            "static_configs": [{"targets": [target.address], "labels": target.labels}],
        }
        for target in targets
    ]
    interval = f"{SCRAPE_SECONDS}s"
    times = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    return yaml.safe_dump({"global": times, "rule_files": ["rules.yaml"], "scrape_configs": jobs})


@contextmanager
def running(program: Path, folder: Path, targets: Sequence[Target]) -> Iterator[Prometheus]:
    """One that has scraped every target."""
    (folder / "rules.yaml").write_text(render())
    (folder / "prometheus.yaml").write_text(configuration(targets))
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    words = (
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--enable-feature=exemplar-storage",
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *words, f"--web.listen-address={address}", "--log.level=warn"], stdout=output, stderr=output
        )
    try:
        prometheus = Prometheus(f"http://{address}")

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return prometheus.scraped(len(targets))
            except OSError:
                return False

        Eventually(logs=[log])(ready, timeout=60)
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)

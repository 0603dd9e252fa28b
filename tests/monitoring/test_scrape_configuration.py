"""Prometheus itself reads the scrape configuration for a cluster without the Prometheus operator."""

import subprocess
from pathlib import Path

from monitoring.__main__ import ROOT

CONFIG = ROOT / "charts/graphpod/files/scrape.yaml"


def test_promtool_accepts_the_scrape_configuration(promtool: Path) -> None:
    done = subprocess.run(
        [promtool, "check", "config", "--lint=all", CONFIG], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr

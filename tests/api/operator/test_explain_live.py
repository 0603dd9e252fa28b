"""`graphpod explain gisvc/NAME` against the real API server: planned, running, and what adopting would change."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.places import Place

GRAPHPOD = Path(sys.executable).with_name("graphpod")


def explained(place: Place, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a user of the cluster runs it."""
    command = [GRAPHPOD, "explain", f"gisvc/{name}", "-n", place.namespace, *arguments]
    environment = {**os.environ, "KUBECONFIG": str(place.cluster.kubeconfig)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_live_service_is_explained_beside_what_its_status_says(applied: Place) -> None:
    done = explained(applied, "demo")
    assert done.returncode == 0, done.stderr
    assert "prefill   planned Breakable, running nothing yet" in done.stdout
    assert "Adopting the same rules would change nothing in the engine's configuration." in done.stdout
    told = json.loads(explained(applied, "demo", "-o", "json").stdout)
    assert told["live"]["configHash"] == told["configHash"] == applied.status()["graph"]["configHash"]


def test_a_service_that_is_not_there_is_called_that(place: Place) -> None:
    done = explained(place, "nobody")
    assert done.returncode == 2
    assert done.stderr == f"error: no gisvc/nobody in namespace {place.namespace}; -n names another\n"

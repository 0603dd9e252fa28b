"""The chart as a helm renders it, without a cluster."""

import subprocess
from functools import cache
from pathlib import Path

import yaml

from testbed.binaries.golang import KUBERNETES

CHART = Path("charts/graphpod")
NAMESPACE = "graphpod-system"


def run(helm: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *args], capture_output=True, text=True, timeout=120)


@cache
def render(helm: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """The same settings are rendered once."""
    wanted = ["--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    return run(helm, "template", "graphpod", str(CHART), *wanted, *(f"--set={setting}" for setting in settings))


def notes(helm: Path, *settings: str) -> str:
    """What an install prints after its objects."""
    wanted = ["--namespace", NAMESPACE, "--dry-run=client"]
    done = run(helm, "install", "graphpod", str(CHART), *wanted, *(f"--set={setting}" for setting in settings))
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def objects(rendered: str) -> list[dict]:
    """In an order of our own: the two helms differ in theirs."""
    found = [document for document in yaml.load_all(rendered, yaml.CSafeLoader) if document]
    return sorted(found, key=lambda document: (document["kind"], document["metadata"]["name"]))


def one(helm: Path, kind: str, *settings: str) -> dict:
    """The only object of a kind that these settings render."""
    done = render(helm, *settings)
    assert done.returncode == 0, done.stderr
    (found,) = [found for found in objects(done.stdout) if found["kind"] == kind]
    return found


def container(helm: Path, *settings: str) -> dict:
    """The operator's container with these settings."""
    (found,) = one(helm, "Deployment", *settings)["spec"]["template"]["spec"]["containers"]
    return found

"""A service restored from a backup, by docs/operations/backup.md: with the objects it had, and without them."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.eventually import Eventually
from tests.places import Manifest, Place

PAGE = Path("docs/operations/backup.md").read_text()
(COMMANDS,) = [block for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if "--cascade=orphan" in block]
WRITTEN = ("apiVersion", "kind", "metadata", "spec")
OF_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


@pytest.fixture
def backup(quiet: Place, tmp_path: Path) -> Path:
    """service.yaml, as backups keep it: without status and without what the API server gave."""
    found = {part: quiet.get("gisvc", "demo")[part] for part in WRITTEN}
    found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in OF_THE_SERVER}
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(found))
    return file


def shell(place: Place, folder: Path, commands: str) -> None:
    """Commands of the page, as its reader runs them in the service's namespace."""
    kubectl = place.cluster.binary("kubectl")
    config = folder / "kubeconfig"
    config.write_bytes(place.cluster.kubeconfig.read_bytes())
    environment = {**os.environ, "KUBECONFIG": str(config), "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    here = f"kubectl config set-context --current --namespace={place.namespace}\n"
    script = "set -euo pipefail\n" + here + commands.replace("NAME", "demo")
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def what_runs(place: Place) -> tuple[int, list[str]]:
    """Generation of the Deployment, and the uids of the pods."""
    generation: int = place.get("deployment", "demo")["metadata"]["generation"]
    return generation, sorted(pod["metadata"]["uid"] for pod in place.pods())


def owner(place: Place, kind: str) -> str:
    found: Manifest = place.get(kind, "demo")["metadata"]["ownerReferences"][0]
    return str(found["uid"])


def test_a_service_made_anew_beside_its_objects_takes_them_when_told_and_restarts_no_pod(
    quiet: Place, backup: Path, eventually: Eventually
) -> None:
    before, first = what_runs(quiet), quiet.get("gisvc", "demo")["metadata"]["uid"]
    anew, given = COMMANDS.split("uid=", 1)
    shell(quiet, backup.parent, anew)
    eventually(quiet.reached("Accepted", "False", "OwnerMissing"))
    assert what_runs(quiet) == before, "what belongs to nobody is left alone"

    shell(quiet, backup.parent, f"uid={given}")
    eventually(quiet.reached("WorkloadAvailable", "False", "Starting"))
    uid = quiet.get("gisvc", "demo")["metadata"]["uid"]
    assert uid != first
    assert [owner(quiet, kind) for kind in ("deployment", "service", "serviceaccount")] == [uid] * 3
    assert what_runs(quiet) == before


def test_a_service_restored_without_its_objects_gets_them_anew(
    quiet: Place, backup: Path, eventually: Eventually
) -> None:
    before = what_runs(quiet)[1]
    quiet.kubectl("delete", "gisvc", "demo", "--wait")
    eventually(lambda: not quiet.names("deployments,pods,configmaps,controllerrevisions"))
    quiet.kubectl("apply", "-f", str(backup))
    eventually(quiet.reached("WorkloadAvailable", "False", "Starting"))
    eventually(lambda: len(quiet.pods()) == 1)
    assert what_runs(quiet)[1] != before

"""The chart on the cluster: installed by helm, and left alone when nothing of it changed."""

import hashlib
import subprocess
from pathlib import Path

from demo.objects import evidence, read, rolled_out, wait
from testbed import Cluster
from testbed.errors import TestbedError

CHART = Path(__file__).resolve().parent.parent / "charts" / "graphpod"
NAMESPACE = "graphpod-system"
RELEASE = "graphpod"
OPERATOR = "graphpod-operator"
SELECTOR = f"app.kubernetes.io/name={OPERATOR}"
CRD = "customresourcedefinition/inferenceservices.graphpod.dev"
HELM_LIMIT = 120.0  # s
ROLLOUT_LIMIT = 120.0  # s


def install(cluster: Cluster, helm: str = "helm4") -> bool:
    """Install or upgrade; False, and no new revision, when this very chart is the one installed."""
    content = _content()
    wanted = f"owner=helm,name={RELEASE},status=deployed,content={content}"
    there = cluster.kubectl("get", "secrets", "-n", NAMESPACE, "-l", wanted, "-o", "name").strip()
    if there and read(cluster, "deployment", OPERATOR, NAMESPACE):
        return False
    run_helm(
        cluster,
        helm,
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"),
        *("--labels", f"content={content}"),
    )
    cluster.kubectl("wait", "--for=condition=Established", CRD, "--timeout=30s")
    return True


def wait_operator(cluster: Cluster, limit: float = ROLLOUT_LIMIT) -> None:
    """Until the operator of the present revision is ready, and alone."""
    wait(
        f"deployment {NAMESPACE}/{OPERATOR} rolled out",
        lambda: rolled_out(read(cluster, "deployment", OPERATOR, NAMESPACE)),
        limit,
        lambda: evidence(cluster, NAMESPACE, f"deployment/{OPERATOR}"),
    )


def run_helm(cluster: Cluster, helm: str, *args: str) -> str:
    """helm's standard output; TestbedError with its complaint."""
    command = [str(cluster.binary(helm)), *args]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HELM_LIMIT, env=cluster.environment(), check=False
    )
    if done.returncode:
        raise TestbedError(f"`{' '.join(command)}` failed with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def _content() -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]

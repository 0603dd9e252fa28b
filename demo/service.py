"""The demo's InferenceService: its weights, its object, and the way to Ready."""

from collections.abc import Callable
from pathlib import Path

from demo.objects import GaveUp, Manifest, conditions, evidence, read, rolled_out, wait
from testbed import Cluster

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "smollm2.yaml"
NAMESPACE = "graphpod-demo"
NAME = "smollm2"
CLAIM = "smollm2-weights"
SELECTOR = f"graphpod.dev/inferenceservice={NAME}"
FILLED = "graphpod.dev/filled"  # annotation of the claim: id of the image whose model is in it, whole
FILL_LIMIT = 300.0  # s
START_LIMIT = 600.0  # s; the service's own budget is shorter, and it ends in a condition that says why

Say = Callable[[str], None]


def fill_claim(cluster: Cluster, image: str, say: Say) -> bool:
    """The weights of `image` in the claim; False, and no Job, when they are there."""
    apply(cluster, HERE / "namespace.yaml")
    apply(cluster, HERE / "claim.yaml")
    claim = read(cluster, "pvc", CLAIM, NAMESPACE)
    if claim and claim["metadata"].get("annotations", {}).get(FILLED) == image:
        return False
    cluster.kubectl("delete", "job", CLAIM, "-n", NAMESPACE, "--ignore-not-found", "--wait", timeout=90)
    apply(cluster, HERE / "weights-job.yaml")
    say("copying the weights into the claim")

    def finished() -> bool:
        state = read(cluster, "job", CLAIM, NAMESPACE)
        ended = {
            one["type"] for one in (state or {}).get("status", {}).get("conditions", []) if one["status"] == "True"
        }
        if "Failed" in ended:
            raise GaveUp(f"job {NAMESPACE}/{CLAIM} failed\n{evidence(cluster, NAMESPACE, f'job/{CLAIM}')}")
        return "Complete" in ended

    wait(
        f"job {NAMESPACE}/{CLAIM} complete",
        finished,
        FILL_LIMIT,
        lambda: evidence(cluster, NAMESPACE, f"job/{CLAIM}", f"pvc/{CLAIM}"),
    )
    cluster.kubectl("annotate", "pvc", CLAIM, "-n", NAMESPACE, "--overwrite", f"{FILLED}={image}")
    return True


def apply(cluster: Cluster, manifest: Path) -> str:
    """kubectl's line about it. Server-side, so that applying the same again is no write; what was edited by hand
    in between is the demo's again.
    """
    return cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(manifest)).strip()


def wait_condition(cluster: Cluster, wanted: str, progress: Say, limit: float = START_LIMIT) -> Manifest:
    """The service once condition `wanted` is True. Ends at once, with evidence, when it is refused or stalled."""

    def reached() -> bool:
        found = read(cluster, "inferenceservice", NAME, NAMESPACE)
        now = conditions(found)
        progress(_where(found, now))
        refused = now.get("Accepted", {}).get("status") == "False"
        stalled = now.get("Stalled", {}).get("status") == "True"
        if refused or stalled:
            said = now["Accepted"] if refused else now["Stalled"]
            raise GaveUp(f"{NAMESPACE}/{NAME}: {said['reason']}: {said['message']}\n{_evidence(cluster)}")
        return now.get(wanted, {}).get("status") == "True"

    wait(f"{NAMESPACE}/{NAME} {wanted}", reached, limit, lambda: _evidence(cluster))
    found = read(cluster, "inferenceservice", NAME, NAMESPACE)
    if found is None:
        raise GaveUp(f"{NAMESPACE}/{NAME} was deleted meanwhile; apply it again")
    return found


def wait_rollout(cluster: Cluster, limit: float = START_LIMIT) -> None:
    """Until only pods of the present template serve."""
    wait(
        f"deployment {NAMESPACE}/{NAME} rolled out",
        lambda: rolled_out(read(cluster, "deployment", NAME, NAMESPACE)),
        limit,
        lambda: _evidence(cluster),
    )


def captured(found: Manifest) -> str:
    """`n/m` over both phases, or nothing before there is a plan."""
    return str(found.get("status", {}).get("graph", {}).get("captured", ""))


def _where(found: Manifest | None, now: dict[str, Manifest]) -> str:
    """The one line that says how far it is."""
    ready = now.get("Ready", {})
    count = captured(found) if found else ""
    # While it captures, the count says it all.
    said = [] if ready.get("reason") == "Capturing" else [ready.get("message")]
    return " · ".join(part for part in (count and f"captured {count}", ready.get("reason"), *said) if part)


def _evidence(cluster: Cluster) -> str:
    service = evidence(cluster, NAMESPACE, f"inferenceservice/{NAME}")
    log = cluster.kubectl("logs", "-n", "graphpod-system", "deployment/graphpod-operator", "--tail=25")
    return f"{service}\n--- log of the operator\n{log}"

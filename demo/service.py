"""The demo's InferenceService: its weights, its object, and the way to Ready."""

from pathlib import Path

import yaml

from demo.ground import Image, Kubectl, Say
from demo.objects import GaveUp, Manifest, conditions, evidence, read, rolled_out, wait
from demo.stuck_pods import trouble

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "smollm2.yaml"
NAMESPACE = "graphpod-demo"
NAME = "smollm2"
KIND = "inferenceservices.graphpod.dev"
"""With its group: other projects have a kind of this name."""
CLAIM = "smollm2-weights"
SELECTOR = f"graphpod.dev/inferenceservice={NAME}"
FILLED = "graphpod.dev/filled"  # annotation of the claim: identity of the image whose model is in it, whole
FILL_LIMIT = 300.0  # s
START_LIMIT = 600.0  # s; the service's own budget is shorter, and it ends in a condition that says why


def fill_claim(cluster: Kubectl, image: Image, say: Say, storage_class: str = "") -> bool:
    """The weights of `image` in the claim; False, and no Job, when they are there."""
    apply(cluster, HERE / "namespace.yaml")
    there = read(cluster, "pvc", CLAIM, NAMESPACE)
    if there is None:
        _apply(cluster, claim(storage_class))  # once: the class of a claim cannot be changed
    elif there["metadata"].get("annotations", {}).get(FILLED) == image.identity:
        return False
    cluster.kubectl("delete", "job", CLAIM, "-n", NAMESPACE, "--ignore-not-found", "--wait", timeout=90)
    _apply(cluster, weights_job(image))
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
        lambda: trouble(cluster, NAMESPACE, f"app.kubernetes.io/name={CLAIM}"),
    )
    cluster.kubectl("annotate", "pvc", CLAIM, "-n", NAMESPACE, "--overwrite", f"{FILLED}={image.identity}")
    return True


def claim(storage_class: str) -> Manifest:
    """claim.yaml; without a class it is the cluster's default that provides the volume."""
    found: Manifest = yaml.safe_load((HERE / "claim.yaml").read_text())
    if storage_class:
        found["spec"]["storageClassName"] = storage_class
    return found


def weights_job(image: Image) -> Manifest:
    """weights-job.yaml with the image to copy from."""
    found: Manifest = yaml.safe_load((HERE / "weights-job.yaml").read_text())
    found["spec"]["template"]["spec"]["containers"][0]["image"] = image.reference
    return found


def apply(cluster: Kubectl, manifest: Path) -> str:
    """kubectl's line about it. Server-side, so that applying the same again is no write; what was edited by hand
    in between is the demo's again.
    """
    return _apply(cluster, yaml.safe_load(manifest.read_text()))


def wait_condition(cluster: Kubectl, wanted: str, progress: Say, limit: float = START_LIMIT) -> Manifest:
    """The service once condition `wanted` is True. Ends at once, with evidence, when it is refused, or stalled on the
    way to anything behind Accepted.
    """

    def reached() -> bool:
        found = read(cluster, KIND, NAME, NAMESPACE)
        now = conditions(found)
        progress(_where(found, now))
        refused = now.get("Accepted", {}).get("status") == "False"
        if refused or (stalled(found) and wanted != "Accepted"):
            said = now["Accepted"] if refused else now["Stalled"]
            raise GaveUp(f"{NAMESPACE}/{NAME}: {said['reason']}: {said['message']}\n{_evidence(cluster)}")
        return now.get(wanted, {}).get("status") == "True"

    wait(
        f"{NAMESPACE}/{NAME} {wanted}",
        reached,
        limit,
        lambda: _evidence(cluster),
        lambda: trouble(cluster, NAMESPACE, SELECTOR),
    )
    found = read(cluster, KIND, NAME, NAMESPACE)
    if found is None:
        raise GaveUp(f"{NAMESPACE}/{NAME} was deleted meanwhile; apply it again")
    return found


def stalled(found: Manifest | None) -> bool:
    """Whether the operator says that it will not get Ready without a change by somebody."""
    return conditions(found).get("Stalled", {}).get("status") == "True"


def wait_restarted(cluster: Kubectl, limit: float = 60.0) -> None:
    """After a restart: until the service is no longer stalled for what its older pods did."""
    wait(
        f"{NAMESPACE}/{NAME} no longer Stalled",
        lambda: not stalled(read(cluster, KIND, NAME, NAMESPACE)),
        limit,
        lambda: _evidence(cluster),
    )


def wait_rollout(cluster: Kubectl, limit: float = START_LIMIT) -> None:
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


def _apply(cluster: Kubectl, manifest: Manifest) -> str:
    text = yaml.safe_dump(manifest)
    return cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text).strip()


def _where(found: Manifest | None, now: dict[str, Manifest]) -> str:
    """The one line that says how far it is."""
    ready = now.get("Ready", {})
    count = captured(found) if found else ""
    # While it captures, the count says it all.
    said = [] if ready.get("reason") == "Capturing" else [ready.get("message")]
    return " · ".join(part for part in (count and f"captured {count}", ready.get("reason"), *said) if part)


def _evidence(cluster: Kubectl) -> str:
    service = evidence(cluster, NAMESPACE, f"{KIND}/{NAME}")
    log = cluster.kubectl("logs", "-n", "graphpod-system", "deployment/graphpod-operator", "--tail=25")
    return f"{service}\n--- log of the operator\n{log}"

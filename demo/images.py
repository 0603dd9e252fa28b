"""Our images on the cluster's nodes, and pods that still run an older one of the same tag."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from demo.objects import listed
from demo.weights import model_folder
from testbed import Cluster, images

TARGETS = ("operator", "runtime", "demo-weights")

Say = Callable[[str], None]


def provide(cluster: Cluster, say: Say) -> dict[str, str]:
    """Build what changed, load what is missing; the image id of every target."""
    ids = {}
    for target in TARGETS:
        weights = model_folder(say) if target == "demo-weights" else None
        archive = images.build(target, say, weights=weights)
        cluster.load(archive, say)
        ids[target] = image_id(archive)
    return ids


def image_id(archive: Path) -> str:
    """`sha256:…` of the image's configuration, which is what a pod's status calls its imageID."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise ValueError(f"{archive}: manifest.json is not a file; delete the archive and build it again")
        return "sha256:" + Path(json.load(manifest)[0]["Config"]).stem


def renew(cluster: Cluster, namespace: str, deployment: str, selector: str, image: str) -> bool:
    """Restart the Deployment when a pod of it runs another image than `image`; whether that was so.

    The tag is the same for every build of a version, so a new build alone would leave the old pods running.
    """
    running = {
        status["imageID"]
        for pod in listed(cluster, "pods", namespace, selector)
        for status in pod.get("status", {}).get("containerStatuses", [])
        if status.get("imageID")
    }
    if running <= {image}:
        return False
    cluster.kubectl("rollout", "restart", f"deployment/{deployment}", "-n", namespace)
    return True

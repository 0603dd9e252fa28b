"""Our images: built and loaded where the demo does that, and pods that still run an older one of the same tag."""

from pathlib import Path

from demo.background_work import BackgroundWork
from demo.ground import Image, Kubectl, Say
from demo.objects import evidence, listed, read, wait
from demo.stuck_pods import AGAIN, stuck, trouble
from demo.weights import model_folder
from testbed import Cluster
from testbed.binaries import packages
from testbed.images import build as images
from testbed.images import packed

TARGETS = ("operator", "runtime", "demo-weights")
RUNS = "graphpod.dev/demo-image"  # annotation of a Deployment: identity of the image its pods were started with
APPEAR_LIMIT = 60.0  # s


def layouts(say: Say) -> dict[str, Path]:
    """The layout of every target, built where something changed."""
    weights = {"demo-weights": model_folder(say)}
    return {target: images.build(target, say, weights=weights.get(target)) for target in TARGETS}


def provide(cluster: Cluster, say: Say) -> dict[str, Image]:
    """Build what changed, load what is missing."""
    nodes = Nodes(cluster)
    nodes.begin(say)
    return nodes.provide(say)


class Nodes:
    """Images built here and loaded into every node of a testbed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def begin(self, say: Say) -> None:
        packages.ensure(say)
        self._layouts = BackgroundWork(layouts)

    def provide(self, say: Say) -> dict[str, Image]:
        found = self._layouts.wait(say)
        for layout in found.values():
            self._cluster.load(layout, say)
        return built(found)


def built(found: dict[str, Path]) -> dict[str, Image]:
    """The images in our layouts, under the references the layouts carry."""
    return {target: Image(images.IMAGES[target].tag, image_id(layout)) for target, layout in found.items()}


def image_id(layout: Path) -> str:
    """`sha256:…` of the image's configuration."""
    return packed.read(layout)[0].id


def renew(
    cluster: Kubectl, namespace: str, deployment: str, selector: str, image: Image, *, retry: bool = False
) -> bool:
    """Restart the Deployment when its pods were started with another build, or cannot start; whether that was so.

    The tag is the same for every build of a version, so a new build alone would leave the old pods running. And a pod
    that could not start pauses for minutes, where a new one tries at once. `retry` restarts in any case.
    """
    wait(
        f"deployment {namespace}/{deployment}",
        lambda: read(cluster, "deployment", deployment, namespace) is not None,
        APPEAR_LIMIT,
        lambda: evidence(cluster, namespace),
    )
    found = read(cluster, "deployment", deployment, namespace) or {}
    runs = found.get("metadata", {}).get("annotations", {}).get(RUNS)
    waiting = stuck(listed(cluster, "pods", "-n", namespace, "-l", selector), AGAIN)
    again = retry or runs not in (None, image.identity) or bool(waiting or trouble(cluster, namespace, selector))
    if again:
        cluster.kubectl("rollout", "restart", f"deployment/{deployment}", "-n", namespace)
    if runs != image.identity:
        mark = f"{RUNS}={image.identity}"
        cluster.kubectl("annotate", f"deployment/{deployment}", "-n", namespace, "--overwrite", mark)
    return again

"""The chart on the cluster: installed by helm, and left alone when nothing of it changed."""

import hashlib
from pathlib import Path

from demo.ground import Ground, Image, Images, Kubectl
from demo.objects import conditions, evidence, read, rolled_out, wait
from demo.stuck_pods import trouble

CHART = Path(__file__).resolve().parent.parent / "charts" / "graphpod"
NAMESPACE = "graphpod-system"
RELEASE = "graphpod"
OPERATOR = "graphpod-operator"
SELECTOR = f"app.kubernetes.io/name={OPERATOR}"
CRD = "customresourcedefinition/inferenceservices.graphpod.dev"
ROLLOUT_LIMIT = 120.0  # s
SERVED_LIMIT = 30.0  # s


def install(ground: Ground, *settings: str) -> bool:
    """Install or upgrade, with `settings` as helm's `--set` takes them; False, and no new revision, when this very
    chart with these very settings is the one installed.
    """
    content = _content(settings)
    there = ground.helm("list", "--namespace", NAMESPACE, "--deployed", "--selector", f"content={content}", "--short")
    if there.split() == [RELEASE] and read(ground, "deployment", OPERATOR, NAMESPACE):
        return False
    ground.helm(
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"),
        *("--labels", f"content={content}"),
        *(f"--set-string={setting}" for setting in settings),
    )
    wait(f"{CRD} served", lambda: _served(ground), SERVED_LIMIT, lambda: ground.kubectl("get", CRD, "-o", "yaml"))
    return True


def _served(ground: Ground) -> bool:
    """Asked here, since `kubectl wait` fails where the conditions are not written yet."""
    kind, name = CRD.split("/")
    return conditions(read(ground, kind, name, NAMESPACE)).get("Established", {}).get("status") == "True"


def wait_operator(cluster: Kubectl, limit: float = ROLLOUT_LIMIT) -> None:
    """Until the operator of the present revision is ready, and alone."""
    wait(
        f"deployment {NAMESPACE}/{OPERATOR} rolled out",
        lambda: rolled_out(read(cluster, "deployment", OPERATOR, NAMESPACE)),
        limit,
        lambda: evidence(cluster, NAMESPACE, f"deployment/{OPERATOR}"),
        lambda: trouble(cluster, NAMESPACE, SELECTOR),
    )


def image_settings(images: Images) -> list[str]:
    """The chart's values for the operator's and the engine's images; the one for GPUs has another tag."""
    whole = "image.registry="  # references are whole names
    operator, engine = _image("image", images["operator"]), _image("engine.image", images["runtime"])
    return [whole, *operator, *engine, engine[0].replace("engine.image", "engine.gpuImage")]


def _image(path: str, image: Image) -> list[str]:
    """REPOSITORY[:TAG][@DIGEST] as three values. A colon before the last slash belongs to a port."""
    name, _, digest = image.reference.partition("@")
    head, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return [f"{path}.repository={head}{slash}{base}", f"{path}.tag={tag}", f"{path}.digest={digest}"]


def _content(settings: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr(settings).encode())
    for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]

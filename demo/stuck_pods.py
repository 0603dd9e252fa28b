"""Pods that will not start however long one waits: reported in seconds, not when a wait runs out."""

from collections.abc import Iterable

from demo.ground import Kubectl
from demo.objects import Manifest, listed

HOPELESS = frozenset({"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"})
"""The kubelet's reasons to keep a container waiting that no time cures. A first ErrImagePull is tried again, and ends
here within seconds when it fails again."""
AGAIN = HOPELESS | {"CrashLoopBackOff"}
"""Reasons for a new pod when the demo is run again: what was wrong may be right by now, and these pause for minutes."""
HINTS = {"CreateContainerConfigError": "put right what the kubelet names, then run it again"}
IMAGE_HINT = (
    "push it there (`make images-demo` prints where it is), name another place with IMAGES=… or OPERATOR_IMAGE=…, "
    "RUNTIME_IMAGE=…, WEIGHTS_IMAGE=…, or load it into the nodes (docs/operations/install.md)"
)


def trouble(cluster: Kubectl, namespace: str, selector: str) -> str | None:
    """Why the pods of a selector cannot start, in the kubelet's or the admission's words; None while they may."""
    if pods := listed(cluster, "pods", "-n", namespace, "-l", selector):
        return stuck(pods)
    events = listed(cluster, "events", "-n", namespace, "--field-selector=reason=FailedCreate")
    return refused(events, listed(cluster, "replicasets,jobs", "-n", namespace, "-l", selector)) if events else None


def stuck(pods: Iterable[Manifest], reasons: frozenset[str] = HOPELESS) -> str | None:
    """The first container that waits for one of the reasons."""
    for pod in pods:
        if "deletionTimestamp" in pod["metadata"]:
            continue
        for container in pod.get("status", {}).get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting") or {}
            reason = waiting.get("reason")
            if reason in reasons:
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                said = waiting.get("message", "")
                return f"{reason}: pod {name}, image {container['image']}: {said}\n{HINTS.get(reason, IMAGE_HINT)}"
    return None


def refused(events: Iterable[Manifest], owners: Iterable[Manifest]) -> str | None:
    """A pod that the API server does not let in: pod security, a quota, an admission policy."""
    uids = {owner["metadata"]["uid"] for owner in owners}
    for event in events:
        if event["involvedObject"].get("uid") in uids:
            return (
                f"the API server refuses the pod: {event['message']}\n"
                "our pods keep to pod security `restricted`; change the label, quota or policy that is named here, "
                "or run the demo on a cluster without it"
            )
    return None

"""Where the pods may run: the part of a pod's spec that `spec.placement` decides."""

from __future__ import annotations

from graphpod_operator.api.placement import Toleration, TopologySpread
from graphpod_operator.render.subject import Body, Subject

DO_NOT_DISRUPT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""What keeps node autoscalers from a pod. It stands in the template or not by the spec alone: were it put there
by the number of pods, scaling would restart them.
"""


def marks(subject: Subject) -> dict[str, str]:
    """Annotations of the pods."""
    return DO_NOT_DISRUPT if subject.spec.placement.do_not_disrupt else {}


def fields(subject: Subject) -> Body:
    """The fields of a pod's spec; an absent one is None or empty."""
    placement = subject.spec.placement
    return {
        "nodeSelector": placement.node_selector,
        "tolerations": [_toleration(toleration) for toleration in placement.tolerations],
        "affinity": _affinity(subject),
        "topologySpreadConstraints": [_spread(subject, spread) for spread in placement.topology_spread],
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
    }


def _toleration(toleration: Toleration) -> Body:
    return toleration.model_dump(mode="json", by_alias=True, exclude_none=True)


def _affinity(subject: Subject) -> Body:
    """The user's affinity; where it says nothing of pods to stay away from, replicas stay apart.

    What is empty is left out. To Kubernetes both are one, but an apply that empties a field takes it away, and then the
    template would depend on what stood there before.
    """
    wanted = subject.spec.placement.affinity.model_dump(by_alias=True, exclude_none=True)
    return {name: terms for name, terms in ({"podAntiAffinity": _apart(subject)} | wanted).items() if terms}


def _apart(subject: Subject) -> Body:
    """Replicas prefer nodes without another one, so that the loss or drain of a node takes one of them.

    Pods of the same template only: with one replica it changes nothing, not in a rollout either, and so it can stand
    in every template, and scaling restarts no pod.
    """
    term = {
        "labelSelector": {"matchLabels": subject.selector},
        "matchLabelKeys": ["pod-template-hash"],
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _spread(subject: Subject, spread: TopologySpread) -> Body:
    """One constraint over the pods of this service, each revision counted for itself."""
    return {
        **spread.model_dump(mode="json", by_alias=True),
        "labelSelector": {"matchLabels": subject.selector},
        "matchLabelKeys": ["pod-template-hash"],
    }

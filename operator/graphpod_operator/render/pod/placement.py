"""Where the pods may run: the part of a pod's spec that `spec.placement` decides."""

from __future__ import annotations

from graphpod_operator.api.names import GROUP_REVISION_LABEL, group_selector
from graphpod_operator.api.placement import Toleration, TopologySpread
from graphpod_operator.render.owner import Body, Owner

DO_NOT_DISRUPT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""What keeps node autoscalers from a pod. It stands in the template or not by the spec alone: were it put there
by the number of pods, scaling would restart them.
"""


def marks(owner: Owner) -> dict[str, str]:
    """Annotations of the pods."""
    return DO_NOT_DISRUPT if owner.spec.placement.do_not_disrupt else {}


def fields(owner: Owner) -> Body:
    """The fields of a pod's spec; an absent one is None or empty."""
    placement = owner.spec.placement
    return {
        "nodeSelector": placement.node_selector,
        "tolerations": [_toleration(toleration) for toleration in placement.tolerations],
        "affinity": _affinity(owner),
        "topologySpreadConstraints": [_spread(owner, spread) for spread in placement.topology_spread],
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "schedulerName": placement.scheduler_name,
    }


def _toleration(toleration: Toleration) -> Body:
    return toleration.model_dump(mode="json", by_alias=True, exclude_none=True)


def _affinity(owner: Owner) -> Body:
    """The user's affinity; where it says nothing of pods to stay away from, replicas stay apart.

    What is empty is left out. To Kubernetes both are one, but an apply that empties a field takes it away, and then the
    template would depend on what stood there before.
    """
    wanted = owner.spec.placement.affinity.model_dump(by_alias=True, exclude_none=True)
    return {name: terms for name, terms in ({"podAntiAffinity": _apart(owner)} | wanted).items() if terms}


def _apart(owner: Owner) -> Body:
    """Replicas prefer nodes without another one, so that the loss or drain of a node takes one of them.

    Pods of the same template only: with one replica it changes nothing, not in a rollout either, and so it can stand
    in every template, and scaling restarts no pod.
    """
    term = {**_same_template(owner), "topologyKey": "kubernetes.io/hostname"}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _spread(owner: Owner, spread: TopologySpread) -> Body:
    """One constraint over the pods of this service, each revision counted for itself."""
    return {
        **spread.model_dump(mode="json", by_alias=True),
        **_same_template(owner),
    }


def _same_template(owner: Owner) -> Body:
    """The pods of this service, each revision for itself. Those of a group prefer nodes of their own, too."""
    if owner.spec.parallelism.nodes > 1:
        return {"labelSelector": group_selector(owner.name), "matchLabelKeys": [GROUP_REVISION_LABEL]}
    return {"labelSelector": {"matchLabels": owner.selector}, "matchLabelKeys": ["pod-template-hash"]}

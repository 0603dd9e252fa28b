"""The LeaderWorkerSet: a group of pods is one replica, made, rolled and restarted as a whole.

Its controller gives each pod its place: the address of the leader, and an index that is 0 for the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpod_operator.api.names import TEMPLATE_ANNOTATION
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.kube.resources import Resource, workload_name
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import template
from graphpod_operator.render.workload.rolling import CONFIGURATION, rolling
from graphpod_policy import Plan

RESTARTS = "RecreateGroupOnPodRestart"
"""A pod that ends takes its group with it: ranks that have lost one cannot go on, and none joins later."""


def leader_worker_set(owner: Owner, pinned: Body) -> Body:
    """The LeaderWorkerSet of a service, around what `rendered` made for it once, without a number of groups. What the
    kind has defaults for is spelled out: its webhook writes them otherwise.
    """
    kind = Resource.LeaderWorkerSet
    return owner.child(
        kind,
        workload_name(kind, owner.name),
        owner.workload_labels,
        spec={
            "leaderWorkerTemplate": {
                "size": pinned["size"],
                "restartPolicy": pinned["restartPolicy"],
                "leaderTemplate": pinned["template"],
                "workerTemplate": pinned["worker"],
            },
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "rolloutStrategy": {"type": "RollingUpdate", CONFIGURATION: {**rolling(owner.spec), "partition": 0}},
        },
    )


def rendered(owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What does not change while its pods are to stay. `template` is the leader's."""
    nodes = owner.spec.parallelism.nodes
    return {"size": nodes, "restartPolicy": RESTARTS, **_both(template.rendered(owner, plan, config_hash))}


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `rendered` made once, for another configuration of the same engine: its name, and the longest start."""
    return {**pinned, **_both(template.reconfigured(pinned["template"], owner, plan, config_hash))}


def pinned_of(spec: Mapping[str, Any]) -> Body:
    """What `rendered` made, from the spec of a LeaderWorkerSet that was made around it."""
    group = spec.get("leaderWorkerTemplate", {})
    names = {"leaderTemplate": "template", "workerTemplate": "worker"}
    return {names.get(name, name): part for name, part in group.items()}


def _both(leader: Body) -> Body:
    """Both templates, with one fingerprint of them as an annotation: it is the group that is of one form."""
    worker = template.of_worker(leader)
    mark = {TEMPLATE_ANNOTATION: fingerprint({"leader": leader, "worker": worker})}
    return {"template": _marked(leader, mark), "worker": _marked(worker, mark)}


def _marked(made: Body, mark: Mapping[str, str]) -> Body:
    metadata = made["metadata"]
    return {**made, "metadata": {**metadata, "annotations": {**metadata["annotations"], **mark}}}

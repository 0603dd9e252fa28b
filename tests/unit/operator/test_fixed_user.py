"""Pods without user ids, for clusters that assign them: new pods only, by the pinned form of a service (contract 2)."""

from dataclasses import replace
from typing import Any

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.unit.operator.objects import INSTALLED, inference_service
from tests.unit.operator.render.test_pinned_rendering import memory, runs, the

ASSIGNED = replace(INSTALLED, fixed_user=False)
IDS = {"runAsUser", "runAsGroup", "fsGroup"}


def planned(installed: Installation, *revisions: Child, **annotations: str) -> Desired:
    raw = inference_service()
    raw["metadata"]["annotations"] = annotations
    wanted = desire(PlanInput(Service.of(raw), installed, revisions))
    assert isinstance(wanted, Desired)
    return wanted


def context(wanted: Desired) -> dict[str, Any]:
    found: dict[str, Any] = the(wanted, Resource.Deployment)["spec"]["template"]["spec"]["securityContext"]
    return found


def test_the_cluster_may_assign_the_user_of_new_pods() -> None:
    assert context(planned(INSTALLED)).keys() >= IDS
    assigned = context(planned(ASSIGNED))
    assert assigned.keys().isdisjoint(IDS)
    assert assigned["runAsNonRoot"] is True


def test_a_running_service_keeps_its_user_until_it_adopts_the_new_form() -> None:
    before = planned(INSTALLED)
    kept = memory(the(before, Resource.ControllerRevision))
    after = planned(ASSIGNED, kept)
    assert runs(after) == runs(before)
    (news,) = after.news
    assert news.reason is Reason.NewEngine
    offered = news.what.split()[1].rstrip(":")
    assert context(planned(ASSIGNED, kept, **{"graphpod.dev/adopt": offered})).keys().isdisjoint(IDS)

"""Pinned rendering: a newer operator changes nothing that runs, and says what it would change."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import desired_children
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.pinned_rendering import ELSEWHERE, made_from
from graphpod_operator.render.pod import template as pod_template
from graphpod_operator.revisions.garbage_collection import Lists, named_by, overgrown, superfluous
from tests import specs
from tests.unit.operator.objects import IMAGE, IMAGES, UID, inference_service, outcome

NEWER = "graphpod.dev/runtime:newer"
OURS = {
    "apiVersion": "graphpod.dev/v1alpha1",
    "kind": "InferenceService",
    "name": "demo",
    "uid": UID,
    "controller": True,
}
Manifest = dict[str, Any]


class Cluster:
    """What the operators of a story wrote: the memories of service `demo`, as a store has them."""

    def __init__(self) -> None:
        self.memories: dict[str, Child] = {}

    def sees(self, image: str = IMAGE, adopt: str = "", **spec: Any) -> Desired:
        """An operator with this default image looks at this spec, and applies what it wants."""
        wanted = self.asks(image, adopt, **spec)
        assert isinstance(wanted, Desired), wanted
        body = the(wanted, Resource.ControllerRevision)
        self.memories[body["metadata"]["name"]] = memory(body)
        return wanted

    def asks(self, image: str = IMAGE, adopt: str = "", **spec: Any) -> Desired | Refused:
        raw = inference_service(**spec)
        raw["metadata"]["annotations"] = {"graphpod.dev/adopt": adopt}
        return desire(PlanInput(Service.of(raw), Installation(Images(image, IMAGES.gpu)), self.memories.values()))


def memory(body: Manifest, **metadata: Any) -> Child:
    raw = {**body, "metadata": {**body["metadata"], "uid": "m", "resourceVersion": "7", **metadata}}
    return Child.of(Resource.ControllerRevision, raw)


def the(wanted: Desired, resource: Resource) -> Manifest:
    (body,) = [child.body for child in wanted.children if child.resource is resource]
    return body


def runs(wanted: Desired) -> tuple[Manifest, Manifest]:
    """What a restart would come from: the whole Deployment and the configuration."""
    name = f"demo-engine-{wanted.config_hash}"
    (config,) = [child.body for child in wanted.children if (child.resource, child.name) == (Resource.ConfigMap, name)]
    return the(wanted, Resource.Deployment)["spec"], config["data"]


def news(wanted: Desired) -> dict[Reason, str]:
    return {one.reason: one.what for one in wanted.news}


def revision(wanted: Desired) -> str:
    name: str = the(wanted, Resource.ControllerRevision)["metadata"]["name"]
    return name.removeprefix("demo-")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """From now on the operator has other rules and makes pods otherwise."""
    resolve = desired_children._resolved

    def upgrade() -> None:
        def other_rules(features: Any, request: Any) -> Any:
            made = resolve(features, dataclasses.replace(request, decode_sizes=(1, 2, 3)))
            return dataclasses.replace(made, resolver_revision="next")

        monkeypatch.setattr(desired_children, "_resolved", other_rules)
        monkeypatch.setattr(pod_template, "EXIT_SECONDS", 11)

    return upgrade


def test_a_newer_operator_changes_nothing_that_runs_and_says_what_it_would(
    cluster: Cluster, next_version: Callable[[], None]
) -> None:
    before = cluster.sees()
    next_version()
    after = cluster.sees(NEWER)
    assert runs(after) == runs(before)
    assert (after.policy.phases, after.policy.resolver_revision) == (
        before.policy.phases,
        before.policy.resolver_revision,
    )
    assert set(news(after)) == {Reason.NewPolicy, Reason.NewEngine}
    assert f"image {IMAGE} becomes {NEWER}" in news(after)[Reason.NewEngine]
    assert len(cluster.memories) == 1


def test_the_same_operator_has_no_news(cluster: Cluster) -> None:
    cluster.sees()
    again = cluster.sees()
    assert again.news == ()
    assert the(again, Resource.ControllerRevision)["revision"] == 1


def test_another_start_budget_is_news_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cluster.sees()
    resolve = desired_children._resolved

    def patient(features: Any, request: Any) -> Any:
        made = resolve(features, request)
        return dataclasses.replace(made, budget=dataclasses.replace(made.budget, start_seconds=3600))

    monkeypatch.setattr(desired_children, "_resolved", patient)
    after = cluster.sees()
    assert runs(after) == runs(before)
    what = news(after)[Reason.NewPolicy]
    offered = what.removeprefix("revision ").removesuffix(": the start budget becomes 3600 s")
    assert set(news(after)) == {Reason.NewPolicy}
    assert revision(cluster.sees(adopt=offered)) == offered


def test_the_annotation_adopts_the_revision_it_names_and_only_that(
    cluster: Cluster, next_version: Callable[[], None]
) -> None:
    before = cluster.sees()
    next_version()
    offered = news(cluster.sees(NEWER))[Reason.NewEngine].removeprefix("revision ").partition(":")[0]
    assert runs(cluster.sees(NEWER, adopt="0123456789")) == runs(before)
    after = cluster.sees(NEWER, adopt=offered)
    assert revision(after) == offered
    assert runs(after) != runs(before)
    assert after.news == ()
    assert runs(cluster.sees(NEWER)) == runs(after), "the annotation may go"
    assert runs(cluster.sees(IMAGE)) == runs(after), "an operator taken back changes nothing either"


def test_auto_takes_every_newer_rendering_and_back(cluster: Cluster, next_version: Callable[[], None]) -> None:
    before = cluster.sees(updates="Auto")
    newer = cluster.sees(NEWER, updates="Auto")
    assert the(newer, Resource.Deployment)["spec"]["template"]["spec"]["containers"][0]["image"] == NEWER
    back = cluster.sees(updates="Auto")
    assert runs(back) == runs(before)
    assert the(back, Resource.ControllerRevision)["revision"] == 3
    next_version()
    assert runs(cluster.sees(NEWER, updates="Pinned")) == runs(before), "pinned is what ran last"


def test_a_spec_that_comes_back_finds_its_rendering_as_it_was(
    cluster: Cluster, next_version: Callable[[], None]
) -> None:
    before = cluster.sees()
    next_version()
    changed = cluster.sees(NEWER, engine={"maxBatch": 4})
    assert the(changed, Resource.Deployment)["spec"]["template"]["spec"]["containers"][0]["image"] == NEWER
    assert runs(cluster.sees(NEWER)) == runs(before)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"replicas": 3},
        {"suspend": True},
        {"rollout": {"strategy": "Replace", "maxUnavailable": 2}},
        {"updates": "Auto"},
    ],
    ids=str,
)
def test_what_no_pod_is_made_from_leaves_the_rendering(
    cluster: Cluster, next_version: Callable[[], None], elsewhere: Manifest
) -> None:
    before = cluster.sees()
    if "updates" not in elsewhere:
        next_version()
    after = cluster.sees(**elsewhere)
    template = "template"
    assert the(after, Resource.Deployment)["spec"][template] == the(before, Resource.Deployment)["spec"][template]
    assert list(cluster.memories) == [f"demo-{revision(before)}"]


def test_a_spec_that_newer_rules_refuse_runs_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cluster.sees()
    lost = (Refused, type("Row", (), {"message": "spec.engine: not built any more"}))[1]
    monkeypatch.setattr(desired_children, "missing", lambda spec: (lost,))
    after = cluster.sees()
    assert runs(after) == runs(before)
    assert news(after) == {
        Reason.RulesRefuse: "this operator version rejects the spec: spec.engine: not built any more"
    }
    refused = cluster.asks(engine={"maxBatch": 4})
    assert isinstance(refused, Refused)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "{",
        "7",
        "[]",
        '{"decisions": [{"rule": "Gone", "phase": "training"}]}',
        '{"decisions": 7}',
        '{"decisions": [7], "gates": []}',
        '{"decisions": [], "gates": 7}',
        '{"decisions": [], "gates": [], "startSeconds": "soon"}',
    ],
)
def test_words_of_a_plan_that_nobody_knows_any_more_do_not_stop_anything(cluster: Cluster, words: str) -> None:
    wanted = cluster.sees()
    body = the(wanted, Resource.ControllerRevision)
    body["data"]["plan.json"] = words
    cluster.memories = {body["metadata"]["name"]: memory(body)}
    assert runs(cluster.sees()) == runs(wanted)


def test_a_memory_of_somebody_else_is_no_memory(cluster: Cluster) -> None:
    wanted = cluster.sees()
    body = the(wanted, Resource.ControllerRevision)
    other = [{**OURS, "uid": "another"}]
    cluster.memories = {"x": memory(body, ownerReferences=other)}
    newer = cluster.sees(NEWER)
    assert the(newer, Resource.Deployment)["spec"]["template"]["spec"]["containers"][0]["image"] == NEWER


def test_a_field_at_its_default_is_as_good_as_absent() -> None:
    written = {"model": {"uri": "pvc://weights/model"}}
    told = {**written, "replicas": 4, "graph": {"prefill": "Auto", "sizes": {}}, "engine": {"pageSize": 16}}
    assert made_from(Spec.model_validate(written), None) == made_from(Spec.model_validate(told), None)
    assert made_from(Spec.model_validate(written), None) != made_from(Spec.model_validate(written), "gpus")


@pytest.mark.parametrize(
    ("more", "fingerprint"),
    [
        ({}, "64eeb5ed5547de0f"),
        ({"resources": {"limits": {"nvidia.com/gpu": "1"}}}, "e9aba57f9df68dc3"),
    ],
)
def test_a_service_with_the_defaults_that_an_earlier_version_wrote_keeps_its_fingerprint(
    more: dict[str, Any], fingerprint: str
) -> None:
    """The API server stored 2048 and 8 in every service. The fingerprints are those that the earlier version made."""
    stored = {"model": {"uri": "pvc://weights/model"}, "engine": {"maxModelLen": 2048, "maxBatch": 8}, **more}
    assert made_from(Spec.model_validate(stored), None) == fingerprint
    auto = {**stored, "engine": {}}
    assert made_from(Spec.model_validate(auto), None) != fingerprint
    one = {**stored, "engine": {"maxModelLen": 2048}}
    assert made_from(Spec.model_validate(one), None) not in (fingerprint, made_from(Spec.model_validate(auto), None))


@pytest.mark.parametrize("path", sorted(path for path, node in specs.fields() if "properties" not in node))
def test_a_field_that_changes_the_pods_changes_what_they_are_made_from(path: str) -> None:
    """Else the change would reach nobody: a service keeps the rendering of what it was made from."""
    node = dict(specs.fields())[path]
    made: dict[str, set[str]] = {}
    for value in specs.values(path, node):
        try:
            spec = Spec.model_validate(raw := specs.with_value(path, value))
        except ValueError:
            continue
        wanted = outcome(**raw)
        if isinstance(wanted, Desired):
            config, workload = runs(wanted)[1], the(wanted, Resource.Deployment)["spec"]["template"]
            made.setdefault(made_from(spec, None), set()).add(repr((config, workload)))
    assert all(len(outcomes) == 1 for outcomes in made.values()), made


def test_the_fields_that_are_elsewhere_exist() -> None:
    known = {path for path, _ in specs.fields()}
    assert {".".join(("spec", *path)) for path in ELSEWHERE} <= known


# --- what may be deleted

SERVICE = Service.of(inference_service())


def named(config_hash: str) -> Manifest:
    return {"metadata": {"annotations": {"graphpod.dev/config-hash": config_hash}}}


def left_over(resource: Resource, name: str, number: int = 0, **metadata: Any) -> Child:
    raw = {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "revision": number}
    raw["metadata"] |= {"ownerReferences": [OURS], "labels": {}, **metadata}
    return Child.of(resource, raw)


def test_a_configuration_that_a_replica_set_or_a_pod_names_stays(cluster: Cluster) -> None:
    wanted = cluster.sees()
    maps = [left_over(Resource.ConfigMap, f"demo-engine-{name}") for name in ("a", "b", "c", wanted.config_hash)]
    foreign = left_over(Resource.ConfigMap, "demo-engine-d", ownerReferences=[])
    names = map(named_by, ({"spec": {"template": named("a")}}, named("b")))
    lists = Lists((*maps, foreign), (), frozenset(names))
    assert overgrown(SERVICE, wanted, lists.config_maps)
    assert [child.name for child in superfluous(SERVICE, wanted, lists)] == ["demo-engine-c"]


def test_the_list_of_hosts_stays_after_a_service_has_stopped_streaming(cluster: Cluster) -> None:
    """No hash names it, and pods of the earlier form may still mount it."""
    wanted = cluster.sees()
    maps = [left_over(Resource.ConfigMap, name) for name in ("demo-engine-a", "demo-engine-b", "demo-source-hosts")]
    assert not overgrown(SERVICE, wanted, maps)
    found = superfluous(SERVICE, wanted, Lists(tuple(maps), (), frozenset()))
    assert [child.name for child in found] == ["demo-engine-a", "demo-engine-b"]


def test_the_newest_memories_stay(cluster: Cluster) -> None:
    wanted = cluster.sees()
    memories = [left_over(Resource.ControllerRevision, f"demo-{number}", number) for number in (3, 1, 2, 4)]
    current = left_over(Resource.ControllerRevision, f"demo-{revision(wanted)}", 5)
    lists = Lists((), (current, *memories), frozenset())
    assert {child.name for child in superfluous(SERVICE, wanted, lists)} == {"demo-1", "demo-2"}


def test_two_of_a_kind_are_history_and_not_looked_at(cluster: Cluster) -> None:
    wanted = cluster.sees()
    maps = [left_over(Resource.ConfigMap, f"demo-engine-{name}") for name in "ab"]
    memories = [left_over(Resource.ControllerRevision, f"demo-{name}") for name in "ab"]
    strangers = [left_over(Resource.ConfigMap, f"demo-engine-{name}", ownerReferences=[]) for name in "cd"]
    assert not overgrown(SERVICE, wanted, [*maps, *strangers, *memories])

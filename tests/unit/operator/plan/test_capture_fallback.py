"""Contract 15: an error that ends the engine's process is survived by a weaker plan, once down, and remembered."""

import json
from typing import Any

import pytest

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION, HASH_ANNOTATION, TEMPLATE_ANNOTATION
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import capture_failure_annotation
from graphpod_operator.plan.capture_failure_annotation import CaptureFailures, recall
from graphpod_operator.render.pod import template as pod_template
from tests.unit.operator.hour import LOOK_SECONDS, Hour
from tests.unit.operator.objects import NAMESPACE, inference_service, pod
from tests.unit.operator.world import KEY, World

AN_HOUR = 3600.0
SERVICE = (Resource.InferenceService, NAMESPACE, "demo")
Policies = dict[str, str]
Death = tuple[int, str] | None


def decode_dies(policies: Policies) -> Death:
    """Every graph of decode ends the process."""
    if policies["decode"] == "Disabled":
        return None
    return 12, "CaptureFailed: model demo, decode, segment 3, size 8: device-side assert"


def full_dies(policies: Policies) -> Death:
    return decode_dies(policies) if policies["decode"] == "Full" else None


def always_dies(policies: Policies) -> Death:
    return 14, "SelfCheckFailed: the replay differs"


def decode(hour: Hour) -> list[str]:
    return [policies["decode"] for policies in hour.walk]


def edit(world: World, **metadata: Any) -> None:
    found = world.cluster.objects[SERVICE]
    found["metadata"] |= metadata
    world.cluster.put(Resource.InferenceService, found)


def remembered(hour: Hour) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(hour.deployment["metadata"]["annotations"][CAPTURE_FAILURES_ANNOTATION])
    return told


async def test_in_an_hour_the_plan_walks_down_once_from_full_over_breakable_to_disabled(world: World) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable", "Disabled"]
    assert {policies["prefill"] for policies in hour.walk} == {"Breakable"}, "the message names decode"
    assert hour.capture_failures == 3 + 3
    assert ("False", "StartDied") in hour.statuses, "not Stalled: a weaker plan follows by itself"
    assert world.condition("Ready") == ("True", "Degraded")
    assert world.condition("Degraded") == ("True", "StartsDied")


async def test_what_was_degraded_and_why_is_told_by_decisions_and_by_one_event_a_step(world: World) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    graph = world.cluster.objects[SERVICE]["status"]["graph"]
    steps = [row for row in graph["decisions"] if row["rule"] == "CaptureFailed"]
    assert [(row["phase"], row["outcome"], row["stage"]) for row in steps] == [("decode", "Degraded", "Spec")] * 2
    assert steps[0]["because"].startswith("3 starts of decode Full ended with CaptureFailed: model demo, decode")
    assert (graph["decode"]["planned"], graph["decode"]["effective"]) == ("Full", "Disabled")
    told = world.told("StartsDied")
    assert len(told) == 2
    assert all("graphpod.dev/adopt" in message for message in told)
    assert world.told("RolloutStarted") == [], "it would name the plan of the spec"


async def test_a_step_that_has_to_wait_is_told_once_it_is_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody changes the Deployment again and again, so the operator gives way for a while each time."""
    hour = Hour(world, decode_dies)
    monkeypatch.setattr(hour, "_next", lambda: world.clock.now + LOOK_SECONDS)

    def rival() -> None:
        hour.deployment["metadata"]["managedFields"] = []
        world.cluster.put(Resource.Deployment, hour.deployment)

    await hour.pass_by(AN_HOUR / 4, rival)
    assert len(hour.walk) == 3
    assert len(world.told("StartsDied")) == 2


@pytest.mark.parametrize(
    ("message", "weaker"),
    [
        ("CaptureFailed: model decode-bench, prefill size 8: lost", {"prefill"}),
        ("CaptureFailed: model prefill or decode, decode, segment 3, size 8: lost", {"decode"}),
        ("CaptureFailed: decode size 4 with 3 rows: lost", {"decode"}),
        ("CaptureFailed: model decode-bench: lost", {"prefill", "decode"}),
    ],
)
async def test_the_phase_that_the_message_speaks_of_gets_weaker_whatever_the_model_is_called(
    world: World, message: str, weaker: set[str]
) -> None:
    hour = Hour(world, lambda policies: (12, message))
    while len(hour.walk) < 2:
        await hour.pass_by(60)
    before, after = hour.walk
    assert {phase for phase in before if before[phase] != after[phase]} == weaker


async def test_the_walk_stops_where_the_engine_lives_and_never_goes_up_again(world: World) -> None:
    hour = Hour(world, full_dies)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable"]
    world.cluster.writes.clear()
    await hour.pass_by(AN_HOUR)
    assert world.cluster.writes == []


async def test_wiping_the_status_midway_changes_nothing(world: World) -> None:
    other = World()
    other.cluster.put(Resource.InferenceService, inference_service())
    await other.relist()
    undisturbed = Hour(other, decode_dies)
    await undisturbed.pass_by(AN_HOUR)

    def wipe() -> None:
        world.cluster.objects[SERVICE].pop("status", None)
        world.cluster.put(Resource.InferenceService, world.cluster.objects[SERVICE])

    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR, wipe)
    assert hour.templates == undisturbed.templates
    assert remembered(hour)["steps"] == remembered(undisturbed)["steps"]


async def test_a_restarted_operator_goes_on_counting(world: World) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(60)
    assert len(remembered(hour)["starts"]) in (1, 2)
    hour.world = World(world.cluster, clock=world.clock)
    await hour.world.relist()
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable", "Disabled"]
    assert hour.capture_failures == 3 + 3


async def test_a_newer_operator_finds_the_weaker_plan_and_restarts_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 2: with another form of the pods, and rules that know no way down from Full."""
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    before = hour.deployment["spec"]
    monkeypatch.setattr(pod_template, "EXIT_SECONDS", 11)
    monkeypatch.setattr(capture_failure_annotation, "weaken", lambda plan, *_: plan)
    world.cluster.objects[SERVICE].pop("status")
    hour.world = World(world.cluster, clock=world.clock)
    await hour.pass_by(AN_HOUR)
    assert hour.deployment["spec"] == before
    assert decode(hour) == ["Full", "Breakable", "Disabled"]
    assert world.condition("EngineUpdateAvailable") == ("True", "NewEngine")
    assert world.condition("Degraded") == ("True", "StartsDied")


async def test_a_lost_memory_of_the_weaker_plan_is_made_again_from_what_runs(world: World) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    before, runs = hour.deployment["spec"], remembered(hour)["runs"]
    del world.cluster.objects[Resource.ControllerRevision, NAMESPACE, f"demo-{runs}"]
    hour.world = World(world.cluster, clock=world.clock)
    await hour.pass_by(AN_HOUR)
    assert hour.deployment["spec"] == before
    made = world.cluster.objects[Resource.ControllerRevision, NAMESPACE, f"demo-{runs}"]
    assert made["data"]["undegraded"] == remembered(hour)["of"]


async def test_a_deleted_memory_of_the_undegraded_plan_is_made_again_and_an_upgrade_restarts_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    before, memory = hour.deployment["spec"], remembered(hour)
    kind, place = Resource.ControllerRevision, NAMESPACE
    lost = world.cluster.objects.pop((kind, place, f"demo-{memory['of']}"))
    await hour.pass_by(AN_HOUR)
    made, runs = (world.cluster.objects[kind, place, f"demo-{memory[name]}"] for name in ("of", "runs"))
    assert made["data"] == lost["data"]
    assert runs["revision"] > made["revision"], "the newest is what runs"
    world.cluster.writes.clear()
    monkeypatch.setattr(pod_template, "EXIT_SECONDS", 11)
    hour.world = World(world.cluster, clock=world.clock)
    await hour.pass_by(AN_HOUR)
    assert hour.deployment["spec"] == before
    assert set(world.kinds()) == {"status"}


@pytest.mark.parametrize("retries", [0, 2, 4])
async def test_as_many_starts_are_tried_as_the_spec_says(world: World, retries: int) -> None:
    await world.edit(graph={"retries": retries})
    hour = Hour(world, full_dies)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable"]
    assert hour.capture_failures == retries + 1


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"image": "graphpod.dev/runtime:mended"}},
        {"engine": {"maxBatch": 16}},
    ],
    ids=["image", "spec"],
)
async def test_a_changed_spec_or_image_is_tried_undegraded(world: World, change: dict[str, Any]) -> None:
    hour = Hour(world, full_dies)
    await hour.pass_by(AN_HOUR)
    await world.edit(**change)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable"] * 2


async def test_another_value_of_the_adopt_annotation_tries_the_plan_again(world: World) -> None:
    mended: list[bool] = []
    hour = Hour(world, lambda policies: None if mended else full_dies(policies))
    await hour.pass_by(AN_HOUR)
    mended.append(True)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable"]
    edit(world, annotations={"graphpod.dev/adopt": "again"})
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable", "Full"]
    assert hour.templates[2] == hour.templates[0], "the same pods as before"
    assert world.condition("Ready") == ("True", "Ready")
    assert CAPTURE_FAILURES_ANNOTATION not in hour.deployment["metadata"].get("annotations", {})


async def test_going_back_to_a_spec_that_was_degraded_tries_it_again(world: World) -> None:
    hour = Hour(world, full_dies)
    await hour.pass_by(AN_HOUR)
    await world.edit(engine={"maxBatch": 16})
    await hour.pass_by(AN_HOUR)
    await world.edit()
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full", "Breakable"] * 3
    assert hour.templates[4:] == hour.templates[:2]


async def test_with_on_capture_failure_fail_it_stalls_with_the_next_step_and_nothing_is_written_again(
    world: World,
) -> None:
    await world.edit(graph={"onCaptureFailure": "Fail"})
    hour = Hour(world, decode_dies)
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full"]
    assert hour.statuses[-1] == ("False", "CaptureFailed")
    assert len(hour.statuses) == len(set(hour.statuses)), "no flap"
    assert world.condition("Stalled") == ("True", "CaptureFailed")
    status = world.cluster.objects[SERVICE]["status"]
    assert "set spec.graph.onCaptureFailure: Degrade, or choose another policy" in status["lastFailure"]["message"]
    deployments = [name for kind, name in world.cluster.writes if kind == "Deployment"]
    assert len(deployments) == 1
    assert CAPTURE_FAILURES_ANNOTATION not in hour.deployment["metadata"].get("annotations", {})


async def test_when_nothing_weaker_is_left_no_death_is_written_any_more(world: World) -> None:
    hour = Hour(world, always_dies)
    await hour.pass_by(AN_HOUR)
    assert hour.walk[-1] == {"prefill": "Disabled", "decode": "Disabled"}
    assert len(hour.walk) == len({tuple(step.values()) for step in hour.walk}), "each plan once"
    world.cluster.writes.clear()
    await hour.pass_by(AN_HOUR)
    assert "Deployment" not in world.kinds()


async def test_a_paused_service_is_not_degraded(world: World) -> None:
    hour = Hour(world, decode_dies)
    await hour.pass_by(30)
    edit(world, annotations={"graphpod.dev/paused": "true"})
    await hour.pass_by(AN_HOUR)
    assert decode(hour) == ["Full"]


async def test_nothing_is_decided_by_what_a_watch_told_last(world: World) -> None:
    """Contract 5: the third death stands in the store alone; the cluster's own list has a pod that serves."""
    hour = Hour(world, decode_dies)
    while hour.capture_failures < 2:
        await hour.pass_by(10)
    assert len(remembered(hour)["starts"]) == 2
    (name,) = [pod.name for pod in world.store.pods(KEY)]
    real = world.cluster.objects[Resource.Pod, NAMESPACE, name]
    ghost = pod(
        name, real["metadata"]["annotations"]["graphpod.dev/config-hash"], restarts=9, running=False,
        engine={"state": {"terminated": {"exitCode": 12, "reason": "Error", "message": "decode"}}},
    )  # fmt: skip
    ghost["metadata"] |= {"resourceVersion": str(10**6), "uid": real["metadata"]["uid"]}
    world.informer.changed(Resource.Pod, ghost)
    before = hour.deployment["spec"]
    await world.reconcile()
    assert hour.deployment["spec"] == before


def show(world: World, *pods: dict[str, Any]) -> None:
    """These are all of the service's pods."""
    for place in [place for place in world.cluster.objects if place[0] is Resource.Pod]:
        del world.cluster.objects[place]
    for one in pods:
        world.cluster.put(Resource.Pod, one)


def died_once(world: World, name: str, ready: bool = False) -> dict[str, Any]:
    """A pod of what runs, in the run after its death in a capture."""
    marks = world.deployment["spec"]["template"]["metadata"]["annotations"]
    ended = {"terminated": {"exitCode": 12, "reason": "Error", "message": "CaptureFailed: model demo, decode: lost"}}
    return pod(
        f"demo-abc-{name}", marks[HASH_ANNOTATION], marks[TEMPLATE_ANNOTATION],
        ready=ready, restarts=1, engine={"lastState": ended},
    )  # fmt: skip


async def look(world: World) -> CaptureFailures:
    """What the operator remembers, once it has looked."""
    await world.relist()
    await world.reconcile()
    annotations = world.deployment["metadata"]["annotations"]
    told = annotations.get(CAPTURE_FAILURES_ANNOTATION)
    return recall(told, json.loads(told)["of"], None) if told is not None else CaptureFailures("")


async def test_deaths_that_a_service_got_over_are_not_counted_with_a_later_one(world: World) -> None:
    await world.edit(replicas=3)
    await look(world)
    show(world, died_once(world, "a"), died_once(world, "b"), died_once(world, "c", ready=True))
    assert (await look(world)).starts == ("uid-demo-abc-a/0", "uid-demo-abc-b/0")
    serving = [died_once(world, name, ready=True) for name in "ab"]
    show(world, *serving, died_once(world, "c", ready=True))
    assert (await look(world)).starts == ()
    show(world, *serving, died_once(world, "new"))
    memory = await look(world)
    assert (memory.starts, memory.steps) == (("uid-demo-abc-new/0",), ())


async def test_a_pod_that_served_after_its_death_may_be_unready_for_a_while(world: World) -> None:
    await world.edit(graph={"retries": 1})
    await look(world)
    show(world, died_once(world, "a"))
    assert (await look(world)).starts == ("uid-demo-abc-a/0",)
    show(world, died_once(world, "a", ready=True))
    await look(world)
    await world.edit(graph={"retries": 0})
    show(world, died_once(world, "a"))
    memory = await look(world)
    assert (memory.starts, memory.steps) == ((), ())


async def test_what_a_pod_got_over_is_forgotten_with_it(world: World) -> None:
    await look(world)
    show(world, died_once(world, "a"))
    await look(world)
    show(world, died_once(world, "a", ready=True))
    assert (await look(world)).over == ("uid-demo-abc-a/0",)
    show(world)
    assert await look(world) == CaptureFailures("")


@pytest.mark.parametrize(
    "change",
    [{"engine": {"image": "graphpod.dev/runtime:mended"}}, {"resources": {"limits": {"memory": "8Gi"}}}],
    ids=["image", "memory"],
)
async def test_pods_of_another_rendering_do_not_count_though_their_configuration_is_the_same(
    world: World, change: dict[str, Any]
) -> None:
    await world.edit(replicas=2)
    await look(world)
    old = [died_once(world, "a"), died_once(world, "b")]
    show(world, *old)
    assert len((await look(world)).starts) == 2
    await world.edit(replicas=2, **change)
    assert await look(world) == CaptureFailures("")
    before, now = (one["metadata"]["annotations"] for one in (old[0], died_once(world, "new")))
    assert before[HASH_ANNOTATION] == now[HASH_ANNOTATION]

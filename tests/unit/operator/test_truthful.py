"""Small lies of the status that were met on a running cluster, each with what is said instead."""

import dataclasses
import re
from typing import Any

import pytest

from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.apply import drift_backoff
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemories
from graphpod_operator.conditions.message import sentence, shortened
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.controller.reconcile import ignored_replicas
from graphpod_operator.docs import reference
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.warmup_report import BORNE_SECONDS, NoReading
from graphpod_operator.schema import crd
from graphpod_operator.telemetry.label_values import Missing
from tests.unit.operator.objects import inference_service, planned, pod, rollout
from tests.unit.operator.told import HASH, READY, STARTING, UID, reading, seen, the, words
from tests.unit.operator.world import HASH as PLAIN
from tests.unit.operator.world import World


def message(status: Any, kind: str) -> str:
    return next(str(row.message) for row in status.conditions if row.type == kind)


def test_a_miss_of_a_pod_that_begins_to_listen_or_ends_is_not_told() -> None:
    for misses, seconds, told in ((1, 0.0, False), (12, 5.9, False), (2, 60.0, False), (3, BORNE_SECONDS, True)):
        missing = NoReading(Missing.Unreachable, "no answer", misses, seconds)
        said = words(the(seen([pod(config_hash=HASH)], {UID: missing}, STARTING)))
        assert (said["GraphsCaptured"][1] == "EngineUnreachable") is told


def test_an_engine_that_does_not_run_is_not_called_unreachable() -> None:
    missing = NoReading(Missing.Unreachable, "no answer", 9)
    ended = pod(config_hash=HASH, running=False)
    assert words(the(seen([ended], {UID: missing}, STARTING)))["GraphsCaptured"][1] != "EngineUnreachable"


@pytest.mark.parametrize("most", [10, 20, 40, 256])
def test_a_text_is_cut_between_two_words(most: int) -> None:
    text = "pod demo: no answer from http://10.0.0.1:8001/warmup: Connection refused, and so on without an end"
    cut = shortened(text * 4, most)
    assert len(cut) <= most
    assert f"{text * 4} ".startswith(cut.removesuffix("…") + " ")


def test_a_word_longer_than_the_room_is_cut_all_the_same() -> None:
    assert shortened("x" * 1000, 256) == "x" * 255 + "…"


def test_a_step_that_the_engine_named_is_not_said_twice() -> None:
    engine = "prefill size 8: a sync; set graph.onCaptureFailure to Degrade to run a weaker policy"
    assert sentence(Reason.CaptureFailed, engine) == f"prefill size 8: a sync; {Reason.CaptureFailed.row.todo}"
    other = "weights of layer 3 are missing; copy the model again"
    assert sentence(Reason.ModelInvalid, other) == other
    lacking = "spec.parallelism.nodes: several nodes are not built in this version; use one"
    assert sentence(Reason.FeatureNotBuilt, lacking) == lacking
    assert sentence(Reason.ModelInvalid, "no config.json").endswith(Reason.ModelInvalid.row.todo)


def test_a_missing_model_folder_is_named_as_the_spec_wrote_it_with_one_step() -> None:
    died = {
        "lastState": {"terminated": {"exitCode": 11, "message": "ModelInvalid: /model/nope is not a folder; fix it"}}
    }
    spec = {"model": {"uri": "pvc://models/nope"}}
    config_hash = planned(**spec).config_hash
    status = the(seen([pod(config_hash=config_hash, engine=died)], {}, STARTING), **spec)
    assert message(status, "ModelAvailable").endswith(": pvc://models/nope is not a folder; fix it")


def test_every_reason_of_the_reference_page_ends_with_a_next_step() -> None:
    rows = [line.split(" | ") for line in reference.conditions().splitlines() if line.startswith("| ")]
    steps = {row[0].removeprefix("| "): row[-2] for row in rows if len(row) == 6}
    assert {reason.name for reason in Reason if reason.row.types} <= set(steps)
    assert [name for name, step in steps.items() if not step.strip()] == []


def test_a_capture_says_how_far_it_is_and_how_long_it_takes() -> None:
    status = the(seen([pod(config_hash=HASH)], {UID: reading(state="Capturing", captured=(11, 1))}, STARTING))
    assert re.match(r"12/26 graphs captured, about \d+ s left", message(status, "Ready"))


def test_an_update_prints_the_whole_command_of_the_revision_that_adopt_takes() -> None:
    for reason in (Reason.NewPolicy, Reason.NewEngine):
        told = sentence(reason, "revision 0123456789: image a becomes b", "demo", namespace="team-a")
        assert told.endswith(
            "kubectl -n team-a annotate inferenceservices.graphpod.dev demo --overwrite graphpod.dev/adopt=0123456789"
        )


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_every_command_of_a_next_step_names_the_namespace(reason: Reason) -> None:
    told = sentence(reason, "revision 0123456789: boom", "demo", "demo-1", "team-a")
    objects = "(?:validat|mutat)ingwebhookconfigurations|gateways|prometheus -A|crds|apiservices"
    whole_cluster = f"explain |describe nodes|get (?:{objects})|rollout restart is|delete:"
    assert re.findall(rf"kubectl (?!-n team-a |{whole_cluster}).*", told) == []
    assert "NAMESPACE" not in told


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_the_longest_names_leave_room_for_what_happened(reason: Reason) -> None:
    told = sentence(reason, "revision 0123456789: " + "b " * 200, "n" * 40, "p" * 57, "s" * 63, "earlier pods (9/9)")
    assert len(told) <= 256
    assert told.startswith("revision 0")


def test_the_columns_show_pods_that_serve_and_the_revision_that_adopt_compares() -> None:
    status = the(READY)
    assert (status.pods, status.revision) == ("1/1", planned().revision)
    assert the(seen([], {}, rollout(1, 1, 0)), replicas=3).pods == "0/3"
    paths = {column.name: column.path for column in crd.COLUMNS}
    assert (paths["Replicas"], paths["Revision"]) == (".status.pods", ".status.revision")


def test_pods_that_all_serve_say_what_is_waited_for() -> None:
    old = dataclasses.replace(READY, rollout=rollout(2, 1, 1))
    assert "1 of 1 pods of this spec serve; the Deployment still counts other pods" in message(the(old), "Ready")


def test_pods_that_serve_and_lost_our_labels_are_counted_and_their_labels_named() -> None:
    told = message(the(seen([], {}, rollout(1, 1, 1))), "WorkloadAvailable")
    assert told.startswith(
        "0 of 1 pods of this spec serve; 1 are available, and 0 of them have the labels "
        "app.kubernetes.io/managed-by=graphpod and graphpod.dev/inferenceservice: "
        "kubectl -n ns get pods -l app.kubernetes.io/instance=demo --show-labels"
    )


def test_a_plan_below_what_was_asked_is_said_where_nothing_is_degraded() -> None:
    spec = {"graph": {"sizes": {"prefill": [5000]}}, "engine": {"maxModelLen": 16, "maxBatch": 1}}
    status = the(seen(), **spec)
    assert status.graph is not None
    assert any(row.outcome == "Excluded" for row in status.graph.decisions)
    assert words(status)["Degraded"] == ("False", "AsPlanned")
    assert "the plan has less than the spec requests" in message(status, "Degraded")
    assert "less than the spec requests" not in message(the(READY), "Degraded")


async def test_an_answer_that_is_no_json_is_told_without_a_second_colon(world: World) -> None:
    await world.reconcile()
    world.cluster.put(Resource.Pod, pod(config_hash=PLAIN))

    async def garbage(_: object) -> bytes:
        return b"not json"

    world.ports.warmup = garbage  # type: ignore[method-assign,assignment]
    await world.relist()
    for _ in range(20):
        await world.reconcile()
    told = world.message("GraphsCaptured")
    assert "answered without a warm-up report: Invalid JSON" in told
    assert ": :" not in told
    assert len(told) <= MESSAGE_MAX


async def test_a_rivals_ready_stands_a_second_at_most(world: World) -> None:
    await world.reconcile()

    async def lie() -> None:
        body = world.service
        rows = [{**row, "status": "True"} if row["type"] == "Ready" else row for row in body["status"]["conditions"]]
        world.cluster.put(Resource.InferenceService, {**body, "status": {**body["status"], "conditions": rows}})
        await world.relist()

    for _ in range(3 * drift_backoff.FREE):
        await lie()
        await world.reconcile()
        world.clock.now += drift_backoff.LIE_PAUSE
        await world.reconcile()
        assert world.condition("Ready")[0] == "False"


async def test_kubectl_scale_of_an_autoscaled_service_is_told(world: World) -> None:
    autoscaling = {"max": 4, "target": 4}
    await world.edit(autoscaling=autoscaling, replicas=1)
    await world.reconcile()
    assert world.told("ReplicasIgnored") == []
    await world.edit(autoscaling=autoscaling, replicas=3)
    for _ in range(3):
        await world.reconcile()
    (told,) = world.told("ReplicasIgnored")
    assert told.startswith("spec.replicas 3 is ignored while spec.autoscaling decides; change spec.autoscaling.min")


async def test_a_scale_that_counts_is_not_told(world: World) -> None:
    await world.reconcile()
    await world.edit(replicas=3)
    await world.reconcile()
    assert world.told("ReplicasIgnored") == []


def test_a_service_made_again_was_not_scaled() -> None:
    memories, body = ServiceMemories(), inference_service(autoscaling={"max": 4, "target": 4}, replicas=1)

    def ignored(raw: dict[str, Any]) -> str | None:
        return ignored_replicas(found := Service.of(raw), memories.of(found))

    assert ignored(body) is None
    other = {**body, "metadata": {**body["metadata"], "uid": "other"}, "spec": {**body["spec"], "replicas": 2}}
    assert ignored(other) is None
    again = {**other, "spec": {**body["spec"], "replicas": 3}}
    assert ignored(again) == "spec.replicas 3 is ignored while spec.autoscaling decides"


def test_a_command_in_a_next_step_names_the_pod_or_else_the_pods_of_the_service() -> None:
    assert sentence(Reason.CrashLoop, "pod demo-1-x: boom", "demo").endswith(
        "kubectl -n NAMESPACE logs demo-1-x --previous"
    )
    assert sentence(Reason.CrashLoop, "boom", "demo", "demo-2").endswith("kubectl -n NAMESPACE logs demo-2 --previous")
    pods = "-l graphpod.dev/inferenceservice=demo"
    assert sentence(Reason.CrashLoop, "boom", "demo").endswith(f"kubectl -n NAMESPACE logs {pods} --previous")
    assert sentence(Reason.CrashLoop, "no pod: boom").endswith("kubectl -n NAMESPACE logs POD --previous")

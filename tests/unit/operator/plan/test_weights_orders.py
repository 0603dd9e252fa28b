"""What pods are asked for the annotations graphpod.dev/sleep and graphpod.dev/reload, from what they report."""

from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.plan.weights_orders import Order, PodWeights, Wish, orders, wish
from graphpod_operator.telemetry.label_values import Command
from tests.unit.operator.objects import inference_service

SLEEP, WAKE, RELOAD = Wish(asleep=True), Wish(), Wish(revision="v2")
SLEEPS = {"sleep": True, "reload": True}


def one(name: str, state: str = "Awake", **changes: Any) -> PodWeights:
    away = state != "Awake" and not changes.get("idle")
    plain = {"ready": not away, "idle": False, "revision": "", "refused": None, "problem": None, "freed": 0}
    return PodWeights(uid=name, name=name, state=state, **{**plain, **changes})


def sent(wanted: Wish, *pods: PodWeights, asked: int = 0, settled: bool = True) -> dict[str, str]:
    found = orders(wanted, pods, asked or len(pods), settled)
    assert len({order.uid for order in found}) == len(found)
    return {order.uid: f"{order.command} {order.revision}".strip() for order in found}


@pytest.mark.parametrize(
    ("wanted", "pod", "expected"),
    [
        (SLEEP, one("a"), "sleep"),
        (SLEEP, one("a", "Asleep", idle=True), "sleep"),  # else its next request would wake it
        (SLEEP, one("a", "Asleep"), None),
        (SLEEP, one("a", "FallingAsleep"), None),
        (SLEEP, one("a", "Waking"), None),
        (SLEEP, one("a", "Reloading"), None),
        (SLEEP, one("a", "SomethingNewer"), None),
        (WAKE, one("a"), None),
        (WAKE, one("a", "Asleep", idle=True), None),
        (WAKE, one("a", "Asleep"), "wake"),
        (WAKE, one("a", "FallingAsleep"), "wake"),
        (WAKE, one("a", "Waking"), None),
        (Wish(asleep=True, not_asleep="spec.engine.sleep is not true"), one("a"), None),
        (Wish(asleep=True, not_asleep="spec.engine.sleep is not true"), one("a", "Asleep"), "wake"),
        (RELOAD, one("a"), "reload v2"),
        (RELOAD, one("a", revision="v1"), "reload v2"),
        (RELOAD, one("a", revision="v2"), None),
        (RELOAD, one("a", "Reloading"), None),
        (RELOAD, one("a", "Asleep", idle=True), "reload v2"),
        (RELOAD, one("a", "Asleep"), "wake"),
        (RELOAD, one("a", "Asleep", problem="the weights were replaced meanwhile"), "reload v2"),
        (RELOAD, one("a", refused="v2", problem="tensors are missing"), None),
        (RELOAD, one("a", refused="v1", problem="tensors are missing"), "reload v2"),
        (Wish(revision="v2", not_reloaded="hf://"), one("a"), None),
        (Wish(asleep=True, revision="v2"), one("a", "Asleep"), None),
        (Wish(asleep=True, revision="v2"), one("a"), "sleep"),
        (Wish(asleep=True, paused=True), one("a"), None),
        (Wish(paused=True), one("a", "Asleep"), None),
        (Wish(revision="v2", paused=True), one("a"), None),
    ],
)
def test_a_pod_is_asked_for_what_it_has_not_done(wanted: Wish, pod: PodWeights, expected: str | None) -> None:
    assert sent(wanted, pod) == ({} if expected is None else {"a": expected})


def test_all_pods_sleep_and_wake_together() -> None:
    assert sent(SLEEP, one("a"), one("b"), one("c", "Asleep")) == {"a": "sleep", "b": "sleep"}
    assert sent(WAKE, one("a", "Asleep"), one("b"), one("c", "Asleep")) == {"a": "wake", "c": "wake"}


def test_pods_sleep_once_the_rollout_has_ended_and_wake_at_any_time() -> None:
    assert sent(SLEEP, one("a"), settled=False) == {}
    assert sent(RELOAD, one("a"), settled=False) == {}
    assert sent(WAKE, one("a", "Asleep"), settled=False) == {"a": "wake"}


def test_new_weights_come_to_one_pod_after_another_while_the_others_serve() -> None:
    a, b, c = one("a"), one("b"), one("c")
    assert sent(RELOAD, c, b, a) == {"a": "reload v2"}
    assert sent(RELOAD, one("a", "Reloading"), b, c) == {}
    assert sent(RELOAD, one("a", revision="v2", ready=False), b, c) == {}
    assert sent(RELOAD, one("a", revision="v2"), b, c) == {"b": "reload v2"}
    assert sent(RELOAD, *(one(name, revision="v2") for name in "abc")) == {}


def test_a_pod_that_does_not_serve_holds_new_weights_up_unless_it_is_the_next() -> None:
    assert sent(RELOAD, one("a"), one("b", ready=False)) == {"b": "reload v2"}
    assert sent(RELOAD, one("a"), one("b", ready=False, revision="v2")) == {}
    assert sent(RELOAD, one("a"), asked=2) == {}  # the other one starts, or ends again and again


def test_weights_that_one_pod_refuses_come_to_no_other() -> None:
    assert sent(RELOAD, one("a", revision="v2"), one("b", refused="v2", problem="no"), one("c")) == {}


def test_pods_whose_weights_were_replaced_while_they_slept_come_back_one_after_another() -> None:
    replaced = {"problem": "the weights were replaced meanwhile"}
    a, b = one("a", "Asleep", **replaced), one("b", "Asleep", **replaced)
    assert sent(RELOAD, a, b) == {"a": "reload v2", "b": "wake"}
    assert sent(RELOAD, one("a", revision="v2"), b) == {"b": "reload v2"}


@pytest.mark.parametrize(
    ("value", "engine", "asleep", "why"),
    [
        (None, SLEEPS, False, ""),
        ("false", SLEEPS, False, ""),
        ("true", SLEEPS, True, ""),
        ("yes", SLEEPS, True, "graphpod.dev/sleep is 'yes'; set it to \"true\", or remove it"),
        ("", SLEEPS, True, "graphpod.dev/sleep is ''; set it to \"true\", or remove it"),
        ("true", {}, True, "spec.engine.sleep is not true; set it, which restarts the pods once"),
        ("true", SLEEPS | {"apiKeySecretRef": {"name": "k"}}, True, "send each pod POST /sleep with the key"),
    ],
)
def test_an_annotation_that_cannot_be_obeyed_says_why(
    value: str | None, engine: dict[str, Any], asleep: bool, why: str
) -> None:
    manifest = inference_service(engine=engine)
    manifest["metadata"]["annotations"] = {} if value is None else {"graphpod.dev/sleep": value}
    found = wish(Service.of(manifest))
    assert found.asleep == asleep
    assert found.sleeps == (asleep and not why)
    assert found.not_asleep.endswith(why) if asleep else not found.sleeps


@pytest.mark.parametrize(
    ("value", "engine", "uri", "why"),
    [
        ("v2", SLEEPS, "pvc://weights/model", ""),
        ("v" * 253, SLEEPS, "pvc://weights/model", ""),
        ("v" * 254, SLEEPS, "pvc://weights/model", "not 1 to 253 printable characters"),
        ("", SLEEPS, "pvc://weights/model", "not 1 to 253 printable characters"),
        ("a\nb", SLEEPS, "pvc://weights/model", "not 1 to 253 printable characters"),
        ("v2", {}, "pvc://weights/model", "spec.engine.reload is not true"),
        ("v2", SLEEPS, "hf://org/name@v2", "each revision of hf:// has a folder of its own"),
        ("v2", SLEEPS | {"apiKeySecretRef": {"name": "k"}}, "pvc://weights/model", "POST /reload with the key"),
    ],
)
def test_new_weights_are_refused_by_name(value: str, engine: dict[str, Any], uri: str, why: str) -> None:
    manifest = inference_service(engine=engine, model={"uri": uri})
    manifest["metadata"]["annotations"] = {"graphpod.dev/reload": value}
    found = wish(Service.of(manifest))
    assert why in found.not_reloaded
    assert found.reloads == (not why)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"parallelism": {"tensor": 2, "pipeline": 1}}, "spec.parallelism.tensor 2"),
        ({"parallelism": {"tensor": 2, "nodes": 2}}, "spec.parallelism.tensor 2 and spec.parallelism.nodes 2"),
        ({"model": {"uri": "pvc://weights/model", "stream": True}}, "spec.model.stream"),
        ({"parallelism": {"tensor": 1}, "model": {"uri": "pvc://weights/model", "stream": False}}, ""),
    ],
)
def test_what_cannot_be_had_at_all_is_not_recommended(changes: dict[str, Any], field: str) -> None:
    manifest = inference_service(engine={}, **changes)
    manifest["metadata"]["annotations"] = {"graphpod.dev/sleep": "true", "graphpod.dev/reload": "v2"}
    found = wish(Service.of(manifest))
    what = "is not true" if not field else f"with {field} "
    assert (what in found.not_asleep, what in found.not_reloaded) == (True, True)


def test_sleeping_pods_of_an_earlier_form_are_woken_and_get_nothing_else() -> None:
    """A rollout that began while they slept may not come to an end."""
    earlier = [one("old", "Asleep"), one("older"), one("idle", "Asleep", idle=True)]
    found = orders(RELOAD, [one("new", ready=False)], 3, False, earlier)
    assert found == (Order("old", Command.Wake),)
    assert orders(SLEEP, [one("new", ready=False)], 3, False, earlier) == ()


def test_no_order_carries_a_revision_but_a_reload() -> None:
    (order,) = orders(SLEEP, [one("a", revision="v1")], 1, True)
    assert order == Order("a", Command.Sleep)

"""`status.engine`: what the pods serve, the smallest value over them."""

from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.warmup_report import Reading
from graphpod_operator.status.engine import engine_status
from tests.unit.operator.objects import pod, report
from tests.unit.operator.world import HASH as PLAIN
from tests.unit.operator.world import World

HASH = "abc"
BOTH = ["maxModelLen", "maxBatch"]


def reading(context: int, batch: int, tokens: int, auto: list[str], **changes: Any) -> Reading:
    limits = {"maxModelLen": context, "maxBatch": batch, "auto": auto}
    ready = {"backend": "CudaGraph", "state": "Ready", "terminal": True, "limits": limits, "kv": {"tokens": tokens}}
    graph = {"prefill": {"effective": "Breakable"}, "decode": {"effective": "Full"}}
    return Reading.model_validate({"podUID": "u", "configHash": HASH, "graph": graph} | ready | changes)


def pods(*names: str) -> list[Pod]:
    return [Pod.of(pod(name)) for name in names]


def test_the_smallest_values_over_the_pods_are_told_in_words_too() -> None:
    both = pods("a", "b")
    read = {
        both[0].uid: reading(40960, 256, 1_210_000, BOTH),
        both[1].uid: reading(40960, 24, 64_000, BOTH),
    }
    status = engine_status(HASH, both, read)
    assert status is not None
    assert (status.max_model_len, status.max_batch, status.kv_tokens) == (40960, 24, 64_000)
    assert status.display == "context 40960 (Auto), batch 24 (Auto), 64000 KV tokens"


def test_what_the_spec_says_is_not_called_auto() -> None:
    (one,) = pods("a")
    status = engine_status(HASH, [one], {one.uid: reading(40960, 64, 1_210_000, ["maxModelLen"])})
    assert status is not None
    assert status.display == "context 40960 (Auto), batch 64, 1.2M KV tokens"


def test_a_host_tier_is_that_of_the_pod_with_the_least() -> None:
    both = pods("a", "b")
    read = {
        one.uid: reading(1, 1, 1, [], hostCache={"bytes": 10 * most, "tokens": most})
        for one, most in zip(both, (800, 640), strict=True)
    }
    status = engine_status(HASH, both, read)
    assert status is not None
    assert status.model_dump(by_alias=True)["hostCacheTokens"] == 640
    plain = engine_status(HASH, both, {one.uid: reading(1, 1, 1, []) for one in both})
    assert plain is not None
    assert plain.host_cache_tokens is None


def test_drafts_are_told_as_the_pods_measured_them() -> None:
    both = pods("a", "b")
    drafts = {"method": "Ngram", "steps": 3, "auto": ["maxBatch"]}
    read = {
        one.uid: reading(1, 1, 1, [], speculative=drafts | {"maxBatch": most})
        for one, most in zip(both, (8, 6), strict=True)
    }
    status = engine_status(HASH, both, read)
    assert status is not None
    told = status.model_dump(by_alias=True, exclude_none=True)
    assert told["speculative"] == {"method": "Ngram", "steps": 3, "maxBatch": 6}


def test_a_draft_model_is_named() -> None:
    (pod,) = pods("a")
    drafts = {"method": "DraftModel", "draftModel": "qwen3-0.6b", "graphs": 7, "steps": 3, "maxBatch": 8, "auto": []}
    status = engine_status(HASH, (pod,), {pod.uid: reading(1, 1, 1, [], speculative=drafts)})
    assert status is not None
    assert status.speculative is not None
    assert status.speculative.draft_model == "qwen3-0.6b"


@pytest.mark.parametrize(
    "changes",
    [{"configHash": "other"}, {"state": "Capturing", "terminal": False}, {"state": "Failed"}, {"limits": None}],
)
def test_only_ready_pods_of_the_planned_configuration_count(changes: dict[str, Any]) -> None:
    (one,) = pods("a")
    assert engine_status(HASH, [one], {one.uid: reading(1, 1, 1, [], **changes)}) is None


async def test_contract_32_what_pods_derive_changes_status_and_no_object(world: World) -> None:
    await world.reconcile()
    children = {place: one for place, one in world.cluster.objects.items() if place[0] is not Resource.InferenceService}
    told = set()
    for context in (2048, 40960, 131072):
        world.cluster.put(Resource.Pod, pod(config_hash=PLAIN, ready=True, container=f"containerd://{context}"))
        limits = {"maxModelLen": context, "maxBatch": 8, "auto": BOTH}
        world.ports.report = report(config_hash=PLAIN, limits=limits, kv={"tokens": context})
        world.clock.now += 60
        await world.relist()
        await world.reconcile()
        status = world.service["status"]
        told.add(status["engine"]["maxModelLen"])
    assert told == {2048, 40960, 131072}
    assert {place: world.cluster.objects[place] for place in children} == children

"""Context and batch that a service does not write: what a plan assumes, what a pod derives."""

from dataclasses import replace

import pytest

from graphpod_policy import Facts, Features, GraphRequest, Phase, limits, refine, resolve
from graphpod_policy.ladder.ladder import decode_ladder
from graphpod_policy.resolution.resolve import chunk_there
from tests.unit.policy.services import GIB, LLAMA, PLAIN

CPU = Features()
QWEN = replace(LLAMA, max_position=40960)
H100 = Facts(gpu_memory_bytes=80 * GIB, model=QWEN)


@pytest.mark.parametrize(
    ("features", "facts", "context", "least", "batch"),
    [
        (PLAIN, H100, 40960, 2048, 256),
        (PLAIN, replace(H100, gpu_memory_bytes=24 * GIB), 40960, 2048, 24),
        (PLAIN, replace(H100, gpu_memory_bytes=180 * GIB), 40960, 2048, 256),
        (PLAIN, replace(H100, reads_whole_tables=True), 2048, 2048, 32),
        (PLAIN, replace(H100, model=replace(QWEN, max_position=512)), 512, 512, 256),
        (PLAIN, replace(H100, model=LLAMA), limits.MOST_CONTEXT, 2048, 256),
        (PLAIN, replace(H100, model=replace(LLAMA, max_position=10 << 20)), limits.MOST_CONTEXT, 2048, 256),
        (replace(PLAIN, tensor=4), replace(H100, gpu_memory_bytes=40 * GIB), 40960, 2048, 160),
        (CPU, Facts(model=QWEN), 2048, 2048, 8),
        (CPU, Facts(model=replace(QWEN, max_position=512)), 512, 512, 8),
        (replace(PLAIN, max_model_len=8192, max_batch=600), H100, 8192, 8192, 600),
        (replace(CPU, max_model_len=100, max_batch=3), Facts(model=QWEN), 100, 100, 3),
    ],
)
def test_what_is_not_written_follows_from_the_model_and_its_device(
    features: Features, facts: Facts, context: int, least: int, batch: int
) -> None:
    assert limits.context(features, facts) == context
    assert limits.least_context(features, facts) == least
    assert limits.batch(features, facts) == batch


def test_a_ladder_of_the_users_own_is_used_to_its_end() -> None:
    small = replace(H100, gpu_memory_bytes=24 * GIB)
    plan = refine(resolve(PLAIN, GraphRequest(decode_sizes=(1, 64))), small)
    assert plan.phases[Phase.Decode].sizes == (1, 64)
    assert limits.batch(PLAIN, small, plan.phases[Phase.Decode].sizes) == 64


def test_a_gpu_plans_graphs_for_every_batch_that_any_pod_could_derive() -> None:
    plan = resolve(PLAIN, GraphRequest())
    assert plan.phases[Phase.Decode].sizes == decode_ladder(256)
    assert plan.phases[Phase.Prefill].sizes[-1] == plan.prefill_chunk == 16384


@pytest.mark.parametrize(("memory", "batch"), [(16, 8), (24, 24), (48, 32), (80, 256), (141, 256), (180, 256)])
def test_the_ladder_of_a_pod_ends_where_its_batch_does(memory: int, batch: int) -> None:
    facts = replace(H100, gpu_memory_bytes=memory * GIB)
    sizes = refine(resolve(PLAIN, GraphRequest()), facts).phases[Phase.Decode].sizes
    assert sizes[-1] == batch == limits.batch(PLAIN, facts, sizes)


@pytest.mark.parametrize(
    ("memory", "chunk"), [(16, 2048), (24, 2048), (48, 4096), (80, 8192), (141, 8192), (180, 16384)]
)
def test_no_pass_of_a_pod_is_longer_than_its_prefill_ladder(memory: int, chunk: int) -> None:
    facts, plan = replace(H100, gpu_memory_bytes=memory * GIB), resolve(PLAIN, GraphRequest())
    assert chunk_there(plan, facts) == chunk == refine(plan, facts).phases[Phase.Prefill].sizes[-1]


def test_a_chunk_that_is_not_the_ladders_is_left_alone() -> None:
    small = replace(H100, gpu_memory_bytes=24 * GIB)
    assert chunk_there(resolve(PLAIN, GraphRequest(prefill_sizes=(64, 4096))), small) == 4096
    assert chunk_there(resolve(replace(PLAIN, prefill_chunk=1000), GraphRequest()), small) == 1000
    assert chunk_there(resolve(Features(), GraphRequest()), Facts()) == 256


def test_no_prefill_graph_is_larger_than_the_longest_pass_of_a_short_model() -> None:
    short = replace(H100, model=replace(QWEN, max_position=4))
    plan = refine(resolve(PLAIN, GraphRequest()), short)
    assert plan.phases[Phase.Prefill].sizes[-1] == 4 * 256
    assert any(decision.rule == "LadderClamp" for decision in plan.decisions)

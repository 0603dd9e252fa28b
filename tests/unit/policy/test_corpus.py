"""A plan may change only together with the resolver's revision: services of a cluster are pinned to one."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import (
    RESOLVER_REVISION,
    AllToAll,
    CompileMode,
    Facts,
    Features,
    GraphRequest,
    KvCacheDtype,
    OnUnsupported,
    Phase,
    Plan,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
    refine,
    resolve,
)
from tests.unit.policy.services import CUDA, GIB, LLAMA, PLAIN

CORPUS = Path(__file__).with_name("corpus.txt")

USED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "large batch": {"max_batch": 600},
    "short context": {"max_model_len": 16, "max_batch": 1},
    "chunk 1000": {"prefill_chunk": 1000},
    "tensor 4": {"tensor": 4},
    "pipeline 2": {"pipeline": 2},
    "data 2 of tensor 4": {"data": 2, "tensor": 4},
    "data 2 of tensor 8, 3 drafts": {"data": 2, "tensor": 8, "speculative": SpeculativeMethod.Ngram},
    **{f"exchange {kind}": {"expert": 8, "all_to_all": kind} for kind in AllToAll},
    "context 2": {"context": 2},
    "two-batch overlap": {"two_batch_overlap": True},
    "expert rebalancing": {"expert_rebalancing": True},
    "symmetric memory": {"symmetric_memory": True},
    "draft tree": {"speculative": SpeculativeMethod.Ngram, "speculative_topk": 2},
    **{f"speculative {method}": {"speculative": method} for method in SpeculativeMethod},
    "host cache": {"host_cache_bytes": GIB},
    "offload": {"cpu_offload_bytes": GIB},
    "offload, staged": {"cpu_offload_bytes": GIB, "cpu_offload_staging": True},
    "adapters": {"lora": ("a",)},
    "adapters, data 2": {"lora": ("a",), "data": 2},
    "FP8 weights": {"quantization": Quantization.Fp8},
    "GGUF weights": {"quantization": Quantization.Gguf},
    "FP8 cache": {"kv_cache_dtype": KvCacheDtype.Fp8},
    "full compile": {"full_compile": True},
    "deterministic": {"deterministic": True},
    "sleep": {"sleep": True},
    "role Prefill": {"role": Role.Prefill},
    "role Decode": {"role": Role.Decode},
}

ASKED: dict[str, GraphRequest] = {
    "Auto": GraphRequest(),
    "Piecewise": GraphRequest(prefill=Policy.Piecewise, decode=Policy.Breakable, compile=CompileMode.Autotune),
    "Full, Fail": GraphRequest(prefill=Policy.Full, decode=Policy.Full, on_unsupported=OnUnsupported.Fail),
    "own sizes": GraphRequest(prefill_sizes=(7, 100, 5000), decode_sizes=(1, 5, 33)),
    "budget": GraphRequest(budget_bytes=300 << 20, budget_seconds=5),
}

KNOWN: dict[str, Facts] = {
    "a small GPU": Facts(gpu_memory_bytes=24 * GIB, free_bytes=GIB, model=LLAMA),
    "latent attention": Facts(model=replace(LLAMA, architecture="DeepseekV3ForCausalLM"), gpu_memory_bytes=141 * GIB),
    "multimodal": Facts(model=replace(LLAMA, architecture="Gemma3ForConditionalGeneration", multimodal=True)),
    "hybrid": Facts(model=replace(LLAMA, architecture="NemotronHForCausalLM")),
    "broken": Facts(model=replace(LLAMA, architecture="DeepseekV4ForCausalLM")),
    "missing layers": Facts(attention_layers=7, configured_layers=8),
}

PLACES: dict[str, Facts] = {
    "an H100": Facts(gpu_memory_bytes=80 * GIB, free_bytes=50 * GIB, model=replace(LLAMA, max_position=131072)),
    "torch's attention": Facts(model=replace(LLAMA, max_position=32768), reads_whole_tables=True),
    "a short model": Facts(model=replace(LLAMA, max_position=16)),
}


def plans() -> Iterator[tuple[str, Plan]]:
    """Every case by name."""
    for device, plain in (("cuda", CUDA), ("cpu", Features())):
        for used, changes in USED.items():
            for asked, request in ASKED.items():
                yield f"{device}: {used}; {asked}", resolve(replace(plain, **changes), request)
        for known, facts in KNOWN.items():
            for used in ("nothing", "exchange DeepEp"):
                plan = resolve(replace(plain, **USED[used]), GraphRequest())
                yield f"{device}: {used}; {known}", refine(plan, facts)
    for asked, request in ASKED.items():
        yield f"cuda: all Auto; {asked}", resolve(PLAIN, request)
    for known, facts in (KNOWN | PLACES).items():
        yield f"cuda: all Auto; {known}", refine(resolve(PLAIN, GraphRequest()), facts)


def told(plan: Plan) -> str:
    """One line: what the plan makes an engine do, and which rules spoke."""
    phases = [
        f"{phase} {row.planned} {len(row.sizes)}x..{row.sizes[-1] if row.sizes else 0} sum {sum(row.sizes)}"
        for phase in Phase
        for row in [plan.phases[phase]]
    ]
    spoke = [f"{decision.rule}/{decision.phase}/{decision.outcome}/{decision.policy}" for decision in plan.decisions]
    duties = [f"{phase}={duty}" for phase in Phase for duty in plan.duties[phase]]
    rest = f"compile {plan.compile}, chunk {plan.prefill_chunk}, start {plan.budget.start_seconds}"
    return " | ".join([*phases, rest, " ".join(spoke), " ".join(duties), " ".join(plan.gates)])


def test_no_plan_of_the_corpus_changes_without_a_new_revision() -> None:
    """After a change that is meant, give RESOLVER_REVISION a new value and run this test with UPDATE_GOLDENS=1."""
    lines = [RESOLVER_REVISION, *(f"{name} | {told(plan)}" for name, plan in plans())]
    recorded = CORPUS.read_text().splitlines() if CORPUS.exists() else [""]
    if os.environ.get("UPDATE_GOLDENS") and recorded[0] != RESOLVER_REVISION:
        CORPUS.write_text("\n".join(lines) + "\n")
        recorded = lines
    changed = [new for new, old in zip(lines, recorded, strict=False) if new != old]
    assert lines == recorded, f"give RESOLVER_REVISION a new value, then UPDATE_GOLDENS=1; first change: {changed[:1]}"


@pytest.mark.parametrize("case", ["cuda: nothing; Auto", "cpu: nothing; Auto"])
def test_the_corpus_tells_what_a_reader_expects(case: str) -> None:
    line = next(line for line in CORPUS.read_text().splitlines() if line.startswith(f"{case} |"))
    assert "prefill Breakable" in line
    assert "decode Full" in line

"""What is built: features and ways of compiling are refused by the field that asks for them."""

from typing import Any

import pytest

from graphpod_policy import (
    BUILT_COMPILE,
    BUILT_POLICIES,
    FEATURES,
    POSSIBLE_FALLBACKS,
    RULES,
    AllToAll,
    AttentionBackend,
    CompileMode,
    Device,
    FallbackReason,
    Features,
    GraphRequest,
    Policy,
    SpeculativeMethod,
    not_built,
)
from graphpod_policy.engine_features import is_built
from graphpod_policy.metrics import METRICS, Process, of
from graphpod_policy.rules import GATES, is_about_built
from tests.unit.policy.services import DECODE, PREFILL
from tests.unit.policy.test_corpus import USED

LACKING = [mode for mode in CompileMode if mode not in (CompileMode.Auto, *BUILT_COMPILE)]


def test_a_feature_is_built_when_its_row_says_so() -> None:
    assert is_built("") is True
    assert {row.name for row in FEATURES if is_built(row.name)} == {row.name for row in FEATURES if row.built}
    assert is_built("CPU")
    assert not is_built("LoRA adapters")
    assert not is_built("no such feature")


@pytest.mark.parametrize("mode", LACKING)
def test_a_way_of_compiling_that_is_not_built_is_refused_by_its_field(mode: CompileMode) -> None:
    (missing,) = not_built(Features(), GraphRequest(compile=mode))
    assert missing.field == "spec.graph.compile"
    choices = ", ".join([CompileMode.Auto, *BUILT_COMPILE])
    assert missing.message == f"spec.graph.compile: {mode} is not built in this version; use one of {choices}"


@pytest.mark.parametrize("mode", [CompileMode.Auto, *BUILT_COMPILE])
def test_a_way_of_compiling_that_is_built_is_not_refused(mode: CompileMode) -> None:
    assert not_built(Features(), GraphRequest(compile=mode)) == ()


def test_a_policy_that_is_not_built_is_refused_word_for_word() -> None:
    (missing,) = not_built(Features(), GraphRequest(prefill=Policy.Full))
    choices = ", ".join([Policy.Auto, *BUILT_POLICIES[PREFILL]])
    assert missing == (
        "spec.graph.prefill",
        f"spec.graph.prefill: Full is not built in this version; use one of {choices}",
    )
    (missing,) = not_built(Features(), GraphRequest(decode=Policy.Piecewise))
    assert missing.field == "spec.graph.decode"
    assert missing.message.startswith("spec.graph.decode: Piecewise is not built")
    for policy in (Policy.Auto, *BUILT_POLICIES[DECODE]):
        assert not_built(Features(), GraphRequest(decode=policy)) == ()


FILES: dict[str, Any] = {"host_cache_bytes": 1 << 30, "host_cache_folder": "/kv", "host_cache_file_bytes": 1 << 30}


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (Features(lora=("a", "b")), "spec.engine.lora: LoRA adapters (a, b) is not built in this version; "
         "remove the field"),
        (Features(gpus=2), "spec.resources.limits[nvidia.com/gpu]: GPUs without a rank (2 GPUs, 1 rank) is not "
         "built in this version; set spec.parallelism so that tensor times pipeline is their number, or ask for a GPU "
         "for each rank"),
        (Features(attention=AttentionBackend.Triton), "spec.engine.attention: Triton attention (Triton) is not built "
         "in this version; use one of Auto, Torch, FlashInfer, Fa3"),
        (Features(**FILES, tensor=2, gpus=2), "spec.engine.hostCache.file: host KV cache in files of several ranks "
         "(2 ranks) is not built in this version; remove the field: the host tier itself works on several GPUs"),
        (Features(**FILES, reload=True), "spec.engine.hostCache.file: host KV cache in files with new weights in place "
         "(reload: true) is not built in this version; remove this field or spec.engine.reload"),
        (Features(deterministic=True), "spec.engine.deterministic: deterministic mode is not built in this version; "
         "remove the field"),
        (Features(all_to_all=AllToAll.DeepEp), "spec.parallelism.allToAll: expert exchange (DeepEp) is not built in "
         "this version; remove the field: each rank computes the tokens of its own experts, and one sum adds "
         "them up"),
    ],
)  # fmt: skip
def test_a_feature_that_is_not_built_is_told_with_what_was_asked(features: Features, message: str) -> None:
    assert [row.message for row in not_built(features, GraphRequest())] == [message]


def _asked(changes: dict[str, Any]) -> set[str]:
    return {row.name for row in FEATURES if row.asked(Features(**changes))} - {"CPU"}


@pytest.mark.parametrize("used", [name for name in USED if name not in ("nothing", "large batch", "short context")])
def test_every_feature_of_the_corpus_is_asked_of_a_row(used: str) -> None:
    """But a chunk, which every engine has."""
    assert bool(_asked(USED[used])) == ("chunk" not in used)


def test_every_row_can_be_asked_for_and_a_plain_service_asks_for_none() -> None:
    everything = [_asked(changes) for changes in USED.values()]
    others = {"GPU", "GPUs without a rank", "several nodes", "attention kernels", "Triton attention", "CPU"}
    others |= {"draft trees", "new weights in place", "host KV cache in files"}
    others |= {f"host KV cache in files {of}" for of in ("of several ranks", "with new weights in place")}
    assert {row.name for row in FEATURES} - set().union(*everything) == others
    eagle = {"speculative": SpeculativeMethod.Eagle}
    assert _asked({**eagle, "speculative_topk": 4}) - _asked(eagle) == {"draft trees"}
    assert _asked({"reload": True}) == {"new weights in place"}
    assert _asked({"device": Device.Cuda, "gpus": 1}) == {"GPU"}
    assert _asked({"device": Device.Cuda, "gpus": 2}) == {"GPU", "GPUs without a rank"}
    assert _asked({"attention": AttentionBackend.Fa3}) == {"attention kernels"}
    assert _asked({"attention": AttentionBackend.Triton}) == {"Triton attention"}
    assert _asked({"nodes": 2}) == {"several nodes"}
    assert _asked({}) == set()


def test_every_rule_is_about_a_feature_of_the_table_or_about_every_service() -> None:
    names = {row.name for row in FEATURES} | {""}
    assert {rule.feature for rule in RULES} <= names
    assert is_about_built("PaddingGate")
    assert not is_about_built("LoRA")


def test_only_fallbacks_that_a_batch_of_this_version_can_have_are_counted() -> None:
    assert set(POSSIBLE_FALLBACKS) >= {
        FallbackReason.ForcedEager,
        FallbackReason.Disabled,
        FallbackReason.WarmingUp,
        FallbackReason.SizeAboveLadder,
        FallbackReason.NotCaptured,
        FallbackReason.PaddingGate,
    }
    for reason in FallbackReason:
        if reason in GATES:
            gate = GATES[reason]
            runs = any(policy in BUILT_POLICIES[phase] for phase in gate.phases for policy in gate.policies)
            assert (reason in POSSIBLE_FALLBACKS) == (runs and is_built(gate.feature))
    assert FallbackReason.Recompiled in POSSIBLE_FALLBACKS
    assert FallbackReason.AdapterGate not in POSSIBLE_FALLBACKS


def test_the_metrics_of_a_process_are_its_own() -> None:
    for process in Process:
        assert {metric.process for metric in of(process)} == {process}
    assert sum(len(of(process)) for process in Process) == len(METRICS)

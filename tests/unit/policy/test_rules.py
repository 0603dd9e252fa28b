"""The table itself: every row says why, what to do and whence; ids, severities and effects fit together."""

from dataclasses import fields

import pytest

from graphpod_policy import RULES, Batch, Duty, FallbackReason, Policy, Rule, Severity, Stage, refusing_gate
from graphpod_policy.enums import Phase
from graphpod_policy.facts import NOTHING_KNOWN
from graphpod_policy.resolution.resolve import AUTO_ORDER
from graphpod_policy.rules import BY_CANDIDATE, BY_NAME, GATES, TABLES, Case
from tests.unit.policy.services import CUDA, DECODE, PREFILL

EXCLUDING = (Severity.Unsupported, Severity.Unproven)

DESIGN = {
    "SpeculativeAllowed", "TargetVerifyGate", "HiddenStateGate", "InputLogprobsGate", "CpuOffload", "HostKvCache",
    "Fp8Kv", "Fp8Weights", "PipelineParallel", "TensorParallel", "DataParallelAttention", "ExpertParallel", "LoRA",
    "Multimodal", "InputEmbedsGate", "FullTorchCompile", "Deterministic", "DisaggregatedPrefill",
    "DisaggregatedDecode", "HybridModel", "NoCuda", "FullPrefill", "LadderClamp", "LadderEmpty", "LadderMemory",
    "UnknownLayers", "PaddingGate", "SelfCheckFailed", "CaptureFailed", "CaptureOutOfMemory",
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.id}-{rule.severity}")
def test_a_row_says_why_what_to_do_and_whence(rule: Rule) -> None:
    for told in (rule.because, rule.hint, rule.source):
        assert told == told.strip()
        assert told
        assert not told.endswith(".")
        assert len(told) <= 240
    assert rule.id[0].isupper()
    assert rule.id.isalnum()
    assert rule.phases
    assert rule.policies
    assert (rule.refuses is not None) == (rule.severity is Severity.Gate)
    effects = (rule.duty, rule.compile, rule.multiple, rule.backend)
    # A row that is applied by name adjusts sizes, unless it says what else.
    adjusts = rule.severity is Severity.Adjust and (rule.when is not None or rule.compile is not None)
    assert sum(effect is not None for effect in effects) == int(adjusts)
    assert rule.stage in (Stage.Spec, Stage.Engine)


def test_every_rule_of_the_design_is_in_the_table() -> None:
    assert {rule.id for rule in RULES} >= DESIGN


def test_no_two_rows_of_a_rule_say_the_same_thing() -> None:
    seen = [(rule.id, rule.severity, rule.phases, rule.policies, rule.duty, rule.compile) for rule in RULES]
    assert len(seen) == len(set(seen))


def test_the_table_is_its_topics_in_order() -> None:
    assert [rule for _, rows in TABLES for rule in rows] == list(RULES)
    titles = [title for title, _ in TABLES]
    assert len(titles) == len(set(titles))


def test_rows_are_found_by_candidate_and_by_name() -> None:
    for (phase, policy), rows in BY_CANDIDATE.items():
        assert rows == tuple(
            rule for rule in RULES if rule.when is not None and phase in rule.phases and policy in rule.policies
        )
    assert set(BY_CANDIDATE) == {(phase, policy) for phase in Phase for policy in Policy}
    assert all(rule.when is None for rule in BY_NAME.values())
    assert len(BY_NAME) == sum(rule.when is None for rule in RULES)


def test_every_duty_is_asked_for_by_a_rule() -> None:
    assert {rule.duty for rule in RULES if rule.duty is not None} == set(Duty)


def test_a_row_about_a_fact_does_not_speak_while_nothing_is_known() -> None:
    for rule in RULES:
        if rule.stage is Stage.Engine and rule.when is not None:
            for phase in rule.phases:
                for policy in rule.policies:
                    assert not rule.when(Case(CUDA, NOTHING_KNOWN, phase, policy)), rule.id


def test_gates_are_asked_in_the_order_of_the_table_and_the_first_one_is_named() -> None:
    everything = Batch(
        PREFILL, Policy.Piecewise, rows=1, padded=1000, verify=True, input_logprobs=True, recompiled=True,
        input_embeds=True, foreign_adapter=True, ranks_agree=False, wants_auxiliary_states=True,
    )  # fmt: skip
    assert refusing_gate(GATES, everything) is FallbackReason(next(iter(GATES)))
    for index, name in enumerate(GATES):
        if name != "SlotGate":
            assert refusing_gate(list(GATES)[index:], everything) is FallbackReason(name)
    assert refusing_gate((), everything) is None
    plain = {row.name: row.default for row in fields(Batch)}
    assert plain["ranks_agree"] is True


@pytest.mark.parametrize("phase", Phase)
def test_disabled_ends_every_search_because_nothing_stands_against_it(phase: Phase) -> None:
    assert AUTO_ORDER[phase][-1] is Policy.Disabled
    assert not [row for row in BY_CANDIDATE[phase, Policy.Disabled] if row.severity in EXCLUDING]


def test_values_of_a_case_stand_behind_the_reason() -> None:
    rule = next(rule for rule in RULES if rule.detail is not None)
    case = Case(CUDA, NOTHING_KNOWN, DECODE, Policy.Full)
    assert Rule.why(BY_NAME["LadderEmpty"], case) == BY_NAME["LadderEmpty"].because
    assert rule.detail is not None
    assert rule.why(case) == f"{rule.because}: {rule.detail(case)}"

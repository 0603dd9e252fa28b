"""Rules about speculative decoding."""

from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_policy.enums import Duty, Severity, SpeculativeMethod
from graphpod_policy.rules.rule import BOTH, DECODE, GRAPHS, PREFILL, Rule

TITLE = "Speculative decoding"

FEATURE, HEADS, EAGLE3 = "speculative decoding", "draft heads", "EAGLE-3 heads"
"""Rows of FEATURES."""

ROWS: tuple[Rule, ...] = (
    Rule(
        id="SpeculativeAllowed",
        phases=DECODE,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.speculative is not None,
        because="a decode pass verifies all draft tokens of a sequence at once; graphs stay on",
        hint="nothing to do: decode graphs are captured for that many tokens, on the finer ladder",
        source="SGLang #22128 (rule 2 of #16331 had switched graphs off)",
        feature=FEATURE,
        detail=lambda case: f"{case.features.verify_width} tokens a sequence",
        duty=Duty.VerifyWidth,
    ),
    Rule(
        id="SpeculativeAllowed",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.speculative in DRAFT_HEADS,
        because="the draft model reads the hidden state of every token, which a graph must keep",
        hint="nothing to do: graphs are captured with full hidden states",
        source="SGLang #28386, #28870, #25568: captured without them, every target prefill ran eager in silence",
        feature=HEADS,
        duty=Duty.HiddenStatesOut,
    ),
    Rule(
        id="SpeculativeAllowed",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.speculative is SpeculativeMethod.Eagle3,
        because="an EAGLE-3 draft also reads the hidden states of inner layers",
        hint="nothing to do: graphs are captured with auxiliary hidden states",
        source="contract: only auxiliary states need a gate",
        feature=EAGLE3,
        duty=Duty.AuxiliaryStatesOut,
    ),
    Rule(
        id="TargetVerifyGate",
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=lambda case: case.features.speculative is not None,
        because="a batch that verifies draft tokens belongs to the decode graph, not to a prefill graph",
        hint="nothing to do: the decode graphs serve such a batch",
        source="SGLang #22128: guard in can_run",
        feature=FEATURE,
        refuses=lambda batch: batch.verify,
    ),
    Rule(
        id="HiddenStateGate",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=lambda case: case.features.speculative is SpeculativeMethod.Eagle3,
        because="the batch wants auxiliary hidden states that its graph was captured without",
        hint="use one speculative method for the whole service",
        source="SGLang #22128: captured hidden mode must be at least the one asked",
        feature=EAGLE3,
        refuses=lambda batch: batch.wants_auxiliary_states and not batch.has_auxiliary_states,
    ),
)

"""SGLang's matrix of features and graph kinds compared with ours: data for the reference page and its test.

SGLang's columns are those of its main branch of 2026-08-20 (d9f6861). On is a graph, Off eager; Partly has a
condition, which `upstream` describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from graphpod_operator.docs.feature_pairs import CROSSED, Crossed
from graphpod_policy import ModelFacts, Phase, Policy, Quantization, Severity
from graphpod_policy.rules import Case, exclusions
from graphpod_policy.rules.policies import NOT_BUILT


class Graphs(StrEnum):
    """Whether a feature and a kind of graph go together."""

    On = "on"
    Partly = "partly"
    Off = "off"


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One feature: what SGLang does with its piecewise, breakable and full decode graphs, what the rules here say, and
    why they differ (empty where they do not).
    """

    feature: str
    crossed: Crossed
    piecewise: Graphs
    breakable: Graphs
    decode: Graphs
    upstream: str
    differs: str


def _crossed(name: str) -> Crossed:
    return next(row for row in CROSSED if row.name == name)


KIMI = ModelFacts("KimiK25ForConditionalGeneration", 61, 7168, 18432, 64, 64, 128, 163840, multimodal=True)
LLADA = ModelFacts("LLaDAModelLM", 32, 4096, 12288, 32, 32, 128, 126464)

On, Partly, Off = Graphs.On, Graphs.Partly, Graphs.Off

ROWS: tuple[PeerRow, ...] = (
    PeerRow(
        "speculative decoding", _crossed("SpeculativeAllowed"), Partly, On, On,
        "piecewise: not for EAGLE targets, whose hidden states it cannot keep",
        "a body-only capture always leaves the hidden state of every token, so that Piecewise needs no exception",
    ),
    PeerRow(
        "weights offloaded", _crossed("CpuOffload"), Off, On, On,
        "no rule for breakable graphs",
        "weights that move are wrong under every kind of graph; a missing rule is no proof",
    ),
    PeerRow(
        "host KV cache", _crossed("HostKvCache"), Off, On, On,
        "one rule with offload, never split",
        "weights stay where they are, and KV is read in breaks only; the wait for a load is there, not in a trace",
    ),
    PeerRow("FP8 KV cache", _crossed("Fp8Kv"), On, On, On, "no rule", ""),
    PeerRow(
        "pipeline parallelism", _crossed("PipelineParallel"), Off, Off, On,
        "breakable: off by accident, a stage fails the count of layers",
        "stage inputs are static buffers and a stage counts its own layers; Piecewise is not proved, no more",
    ),
    PeerRow("data-parallel attention", _crossed("DataParallelAttention"), Off, On, On, "breakable: all-rank vote", ""),
    PeerRow("whole-model compile", _crossed("FullTorchCompile"), Off, On, On, "no rule for breakable graphs", ""),
    PeerRow("expert exchange (DeepEp)", _crossed("ExpertParallel"), Off, On, On, "deepep, megamoe, flashinfer", ""),
    PeerRow("LoRA", _crossed("LoRA"), Off, On, On, "dense models, not with data-parallel attention", ""),
    PeerRow(
        "multimodal, on no list (Gemma 3)", _crossed("Multimodal"), Off, Off, On,
        "both by lists of architectures",
        "only the language model's layers are captured, so that Breakable needs no list; batches that bring "
        "embeddings are a gate",
    ),
    PeerRow("multimodal, listed (Kimi K2.5)", Crossed("Multimodal", "", model=KIMI), On, On, On, "on both lists", ""),
    PeerRow("deterministic", _crossed("Deterministic"), Off, On, On, "decode without KV split", ""),
    PeerRow(
        "prefill role", _crossed("DisaggregatedPrefill"), Off, On, Off,
        "piecewise: no reason recorded",
        "without a reason Piecewise is Unproven here, not Unsupported: requested explicitly it runs",
    ),
    PeerRow("decode role", _crossed("DisaggregatedDecode"), Off, Off, On, "the other phase is off", ""),
    PeerRow(
        "GGUF weights", Crossed("GgufWeights", "", {"quantization": Quantization.Gguf}), Off, On, On,
        "piecewise: unpacking cannot be traced", "",
    ),
    PeerRow(
        "diffusion language model", Crossed("DiffusionModel", "", model=LLADA), Off, On, On,
        "piecewise: a context manager in the forward pass", "",
    ),
    PeerRow(
        "symmetric memory", Crossed("SymmetricMemory", "", {"symmetric_memory": True}), Off, On, On,
        "piecewise: its pool cannot be traced", "",
    ),
    PeerRow(
        "expert rebalancing", Crossed("ExpertRebalancing", "", {"expert_rebalancing": True}), Off, On, On,
        "piecewise: experts are recorded while the model runs", "",
    ),
)  # fmt: skip
"""The rows of SGLang's behaviour at that commit."""


def ours(row: PeerRow) -> tuple[Graphs, Graphs, Graphs]:
    """What the rules here say of Piecewise and Breakable prefill and of Full decode, whatever is built."""
    return (
        _judged(row, Phase.Prefill, Policy.Piecewise),
        _judged(row, Phase.Prefill, Policy.Breakable),
        _judged(row, Phase.Decode, Policy.Full),
    )


def _judged(row: PeerRow, phase: Phase, policy: Policy) -> Graphs:
    rules = exclusions(Case(row.crossed.features, row.crossed.facts, phase, policy))
    rules = [rule for rule in rules if rule.id != NOT_BUILT]
    if not rules:
        return Graphs.On
    return Graphs.Partly if all(rule.severity is Severity.Unproven for rule in rules) else Graphs.Off

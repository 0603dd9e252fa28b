"""Rules about the model: adapters from the spec, the rest once its config.json is known."""

from graphpod_policy.enums import CompileMode, Duty, ModelPath, Policy, Severity, Stage
from graphpod_policy.facts import ModelFacts
from graphpod_policy.rules.rule import BOTH, EVERY, GRAPHS, PREFILL, Case, Rule

TITLE = "Models and adapters"

PIECEWISE_MULTIMODAL = ("Cohere2Vision", "KimiK25", "MiniMaxM3")
"""Multimodal architectures whose language model is traced whole, by the beginning of their name."""
PIECEWISE_BROKEN = ("DeepseekV4", "Qwen3Next", "BailingMoeV2_5")
"""Architectures that Piecewise cannot trace."""
BREAKABLE_BROKEN = ("DeepseekV4",)
"""Architectures whose indexer scratch is pinned in the pool of a segmented capture: memory runs out."""


def _architecture(case: Case, names: tuple[str, ...]) -> bool:
    return case.facts.model is not None and case.facts.model.architecture.startswith(names)


def _model(case: Case) -> ModelFacts:
    """The model of a case whose condition has seen it."""
    assert case.facts.model is not None
    return case.facts.model


def _by_transformers(case: Case) -> bool:
    return case.facts.model is not None and case.facts.model.path is ModelPath.Transformers


ROWS: tuple[Rule, ...] = (
    Rule(
        id="LoRA",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: bool(case.features.lora),
        because="each batch brings another adapter object, which breaks the guards of a trace",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 8",
        feature="LoRA adapters",
    ),
    Rule(
        id="LoRA",
        phases=PREFILL,
        policies=(Policy.Breakable, Policy.Full),
        severity=Severity.Unsupported,
        when=lambda case: bool(case.features.lora) and case.features.data > 1,
        because="adapters over data-parallel attention ranks have no static buffers",
        hint="remove spec.engine.lora, or set spec.parallelism.data: 1, or set spec.graph.prefill: Disabled",
        source="SGLang cuda_graph_setup.py: LoRA with DP attention is not captured",
        feature="LoRA adapters",
    ),
    Rule(
        id="LoRA",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: bool(case.features.lora),
        because="a graph reads adapters at the addresses it was captured with",
        hint="nothing to do: adapters live in static buffers",
        source="SGLang #30988",
        feature="LoRA adapters",
        duty=Duty.StaticAdapterBuffers,
    ),
    Rule(
        id="Multimodal",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: (
            case.facts.model is not None
            and case.facts.model.multimodal
            and not _architecture(case, PIECEWISE_MULTIMODAL)
        ),
        because="the language model of this architecture cannot be traced apart from its encoders",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang model_config.py: multimodal architectures allowed for tc_piecewise",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="Multimodal",
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.facts.model is not None and case.facts.model.multimodal,
        because="encoders and the merging of their output differ from batch to batch",
        hint="nothing to do: only the language model's layers are captured",
        source="SGLang #24662: the inner layer stack alone is captured",
        stage=Stage.Engine,
        duty=Duty.TextBodyOnly,
    ),
    Rule(
        id="HybridModel",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unproven,
        when=lambda case: case.facts.model is not None and case.facts.model.hybrid,
        because="splitting a trace at linear-attention layers is not proved yet",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang splits at linear attention, but lists Qwen3Next and BailingMoeV2_5 as broken",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="HybridModel",
        phases=BOTH,
        policies=(Policy.Breakable, Policy.Piecewise),
        severity=Severity.Adjust,
        when=lambda case: case.facts.model is not None and case.facts.model.hybrid,
        because="linear-attention and Mamba layers keep a state for each request, as attention does",
        hint="nothing to do: those layers are breaks; each costs some idle time on the device",
        source="SGLang break points: linear attention, Mamba; cost in #35851",
        stage=Stage.Engine,
        duty=Duty.LayersAreBreaks,
    ),
    Rule(
        id="DiffusionModel",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: case.facts.model is not None and case.facts.model.diffusion,
        because="a context manager in the forward pass of a diffusion language model breaks the trace",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 11",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="BrokenArchitecture",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: _architecture(case, PIECEWISE_BROKEN),
        because="this architecture cannot be traced",
        hint="set spec.graph.prefill: Breakable, or Disabled",
        source="SGLang PCG rule 1",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="BrokenArchitecture",
        phases=PREFILL,
        policies=(Policy.Breakable,),
        severity=Severity.Unsupported,
        when=lambda case: _architecture(case, BREAKABLE_BROKEN),
        because="the indexer of this architecture pins scratch memory for every size, and memory runs out",
        hint="set spec.graph.prefill: Disabled",
        source="SGLang BCG rule 1",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="TransformersPath",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: _by_transformers(case),
        because="modules of transformers are captured as they run; what they do is not traced",
        hint="set spec.graph.prefill: Breakable",
        source="reach test of 178 model types on breakable graphs, one H100, 2026-11-22",
        stage=Stage.Engine,
        detail=lambda case: _model(case).architecture,
    ),
    Rule(
        id="TransformersPath",
        phases=BOTH,
        policies=EVERY,
        severity=Severity.Adjust,
        when=lambda case: _by_transformers(case),
        because="layers that transformers computes are not in halves that could be compiled",
        hint="keep spec.graph.compile at Auto",
        source="docs/architecture.md, any model",
        stage=Stage.Engine,
        compile=CompileMode.Nothing,
    ),
    Rule(
        id="HostRead",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: case.facts.model is not None and bool(case.facts.model.uncapturable),
        because="code of the model does what a graph cannot hold, as a rehearsal before the first capture has shown",
        hint="nothing to do: the phase runs without graphs",
        source="reach test of 178 model types on breakable graphs, one H100, 2026-11-22",
        stage=Stage.Engine,
        detail=lambda case: f"{_model(case).architecture} {_model(case).uncapturable}",
    ),
    Rule(
        id="UnknownLayers",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: (
            case.facts.attention_layers is not None and case.facts.attention_layers != case.facts.configured_layers
        ),
        because="a layer whose attention is not found would be captured with the attention of one batch in it",
        hint="compare config.json with the weights: the two do not match",
        source="SGLang counts attention layers and blames GQA when a pipeline stage has fewer",
        stage=Stage.Engine,
        detail=lambda case: (
            f"{case.facts.attention_layers} attention layers found, {case.facts.configured_layers} configured"
        ),
    ),
)

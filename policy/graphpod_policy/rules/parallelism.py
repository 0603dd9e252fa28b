"""Rules about one replica on several devices."""

from math import gcd

from graphpod_policy.enums import AllToAll, Duty, Policy, Severity
from graphpod_policy.rules.rule import BOTH, DECODE, GRAPHS, PREFILL, Case, Rule

TITLE = "Parallelism"

EXPERT_MULTIPLE = 8
"""Sizes that are no multiple of this can hang the capture of an expert exchange (SGLang, DeepEP)."""

BREAKABLE_EXCHANGES = (AllToAll.DeepEp, AllToAll.MegaMoe, AllToAll.FlashInfer)
"""Expert exchanges that run as breaks."""


def verify_multiple(case: Case) -> int:
    """Sequences whose draft tokens divide evenly over the tensor ranks of one attention rank."""
    ranks = max(1, case.features.tensor // case.features.data)
    return ranks // gcd(ranks, case.features.verify_width)


ROWS: tuple[Rule, ...] = (
    Rule(
        id="TensorParallel",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.tensor > 1,
        because="ranks wait for each other in every captured collective",
        hint="nothing to do: every rank captures the same sizes in the same order",
        source="SGLang captures largest first on all ranks, with a barrier for each size",
        feature="tensor parallelism",
        duty=Duty.SameLadderEverywhere,
    ),
    Rule(
        id="PipelineParallel",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unproven,
        when=lambda case: case.features.pipeline > 1,
        because="the pieces of a stage have run only for small models, on CPUs and on two GPUs",
        hint="set spec.graph.prefill: Breakable, whose stages read static buffers",
        source="SGLang PCG rule 4 (no reason recorded); seed #14547; texts equal by the recorder, 2026-11-26",
        feature="pipeline parallelism",
    ),
    Rule(
        id="PipelineParallel",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.pipeline > 1,
        because="a stage's input comes from another device and must arrive at an address that never moves",
        hint="nothing to do: stage inputs are static buffers",
        source="SGLang #36248: stable proxy buffers; before it a pipeline stage failed the layer count",
        feature="pipeline parallelism",
        duty=Duty.StaticStageBuffers,
    ),
    Rule(
        id="DataParallelAttention",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.data > 1,
        because="ranks hold different token counts, which traced pieces cannot follow",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 2",
        feature="data-parallel attention",
    ),
    Rule(
        id="DataParallelAttention",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.data > 1,
        because="a rank on a graph and an eager rank would wait for each other and never finish",
        hint="nothing to do: ranks vote on every batch, and all run the largest rank's size. Sizes, maxBatch and the "
        "prefill chunk are those of one rank: the service decodes up to spec.parallelism.data times maxBatch",
        source="SGLang #30898, #31682: vote in the scheduler's all-gather, minimum over ranks",
        feature="data-parallel attention",
        duty=Duty.AllRankVote,
    ),
    Rule(
        id="ExpertParallel",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.all_to_all is not None,
        because="the exchange of tokens between experts does not compile",
        hint="set spec.graph.prefill: Breakable and spec.parallelism.allToAll: DeepEp, MegaMoe or FlashInfer",
        source="SGLang PCG rule 7",
        feature="expert exchange",
    ),
    Rule(
        id="ExpertParallel",
        phases=PREFILL,
        policies=(Policy.Breakable,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.all_to_all is not None and case.features.all_to_all not in BREAKABLE_EXCHANGES,
        because="this expert exchange has no break of its own",
        hint="set spec.parallelism.allToAll: DeepEp, MegaMoe or FlashInfer, or spec.graph.prefill: Disabled",
        source="SGLang BCG rule 5",
        feature="expert exchange",
        detail=lambda case: f"spec.parallelism.allToAll is {case.features.all_to_all}",
    ),
    Rule(
        id="ExpertParallel",
        phases=PREFILL,
        policies=(Policy.Breakable, Policy.Full),
        severity=Severity.Adjust,
        when=lambda case: case.features.all_to_all is not None,
        because="other sizes can hang the capture of an expert exchange",
        hint=f"give sizes in spec.graph.sizes that are multiples of {EXPERT_MULTIPLE}",
        source="SGLang _apply_deepep_adjustments",
        feature="expert exchange",
        multiple=lambda case: EXPERT_MULTIPLE,
    ),
    Rule(
        id="ExpertRebalancing",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.expert_rebalancing,
        because="experts move and are counted while the model runs, which a trace takes for constants",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 16 (EPLB, expert-distribution recorder)",
        feature="expert rebalancing",
    ),
    Rule(
        id="ContextParallel",
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: case.features.context > 1,
        because="a capture's dummy batch does not support a sequence split over ranks",
        hint="set spec.graph.prefill: Disabled, or spec.parallelism.context: 1",
        source="SGLang PCG rules 17, 19, 20; BCG rules 2, 3",
        feature="context parallelism",
    ),
    Rule(
        id="TwoBatchOverlap",
        phases=PREFILL,
        policies=(Policy.Breakable,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.two_batch_overlap,
        because="two interleaved half-batches do not fit one list of segments and breaks",
        hint="set spec.parallelism.twoBatchOverlap: false, or spec.graph.prefill: Disabled",
        source="SGLang BCG rule 4",
        feature="two-batch overlap",
    ),
    Rule(
        id="TwoBatchOverlap",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unproven,
        when=lambda case: case.features.two_batch_overlap,
        because="traced pieces are not proved yet for two interleaved half-batches",
        hint="set spec.parallelism.twoBatchOverlap: false, or spec.graph.prefill: Disabled",
        source="SGLang: overlap needs an expert exchange, which PCG rule 7 excludes",
        feature="two-batch overlap",
    ),
    Rule(
        id="TwoBatchOverlap",
        phases=DECODE,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.two_batch_overlap,
        because="a batch is halved, so that every size must be even",
        hint="give even sizes in spec.graph.sizes.decode",
        source="SGLang get_batch_sizes_to_capture: alignment is doubled",
        feature="two-batch overlap",
        multiple=lambda case: 2,
    ),
    Rule(
        id="SymmetricMemory",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=lambda case: case.features.symmetric_memory,
        because="the memory pool of symmetric memory is a context that a trace cannot hold",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 15",
        feature="symmetric memory",
    ),
    Rule(
        id="RankAlignment",
        phases=DECODE,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: verify_multiple(case) > 1 and case.features.data > 1,
        because="the tokens of a decode pass must divide evenly over the tensor ranks of one attention rank",
        hint="give sizes in spec.graph.sizes.decode whose tokens divide evenly",
        source="SGLang get_batch_sizes_to_capture: batch × width, aligned to the attention's tensor ranks",
        feature="data-parallel attention",
        detail=lambda case: f"multiples of {verify_multiple(case)} sequences of {case.features.verify_width} tokens",
        multiple=verify_multiple,
    ),
)

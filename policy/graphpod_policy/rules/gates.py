"""Gates: rules asked of every batch at run time. A refused batch runs eagerly and is counted by the gate's id.

The gates of speculative decoding stand with its other rules. Gates are asked in the order of the table.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from graphpod_policy.enums import Policy, Severity, Stage
from graphpod_policy.rules.rule import BOTH, GRAPHS, PREFILL, Rule, always

TITLE = "Gates"

PADDING_GATE = "PaddingGate"
PADDING_RATIO = 2
"""A batch padded to more than this multiple of its rows ..."""
PADDING_ROWS = 64
"""... and by more than this many rows runs eagerly (rule PaddingGate)."""
SIZE_STEP = 16
"""Sizes that are advised are multiples of this, as those of the default ladder are."""


def padding_refused(real: int, padded: int) -> bool:
    """Rule PaddingGate for a batch of `real` rows on a graph of `padded` rows."""
    return padded > PADDING_RATIO * real and padded - real > PADDING_ROWS


class Gap(NamedTuple):
    """Rows of a batch, from the first to the last, that PaddingGate sends to the eager path."""

    first: int
    last: int


def gaps(sizes: tuple[int, ...]) -> tuple[Gap, ...]:
    """What PaddingGate refuses of a ladder, below its largest size."""
    # The least row count that may be padded to `size` follows the gap.
    ends = ((low, min(-(-size // PADDING_RATIO), size - PADDING_ROWS) - 1) for low, size in _pairs(sizes))
    return tuple(Gap(low + 1, end) for low, end in ends if end > low)


def closing(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The fewest sizes, in steps of SIZE_STEP where that is enough, that leave a ladder without gaps."""
    added: list[int] = []
    for low, size in _pairs(sizes):
        while padding_refused(low + 1, size):
            most = max(PADDING_RATIO * (low + 1), low + 1 + PADDING_ROWS)
            low = most // SIZE_STEP * SIZE_STEP
            added.append(low)
    return tuple(added)


def _pairs(sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Each size with the one below it, the smallest with 0."""
    return pairwise((0, *sizes))


ROWS: tuple[Rule, ...] = (
    Rule(
        id="InputLogprobsGate",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Gate,
        when=always,
        because="log-probabilities of the prompt need the hidden state of every row, which is not proved under "
        "Piecewise; those of the answer stay on the graph",
        hint="set spec.graph.prefill: Breakable, or request log-probabilities of the answer only",
        source="seed #11745; a start at the prompt's end asks for none",
        refuses=lambda batch: batch.input_logprobs,
    ),
    Rule(
        id="InputEmbedsGate",
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=lambda case: case.facts.model is not None and case.facts.model.multimodal,
        because="the batch brings embeddings in place of token ids",
        hint="nothing to do: this is expected for images and sound, and text-only batches stay on graphs",
        source="SGLang can_replay_locally",
        stage=Stage.Engine,
        refuses=lambda batch: batch.input_embeds,
    ),
    Rule(
        id="AdapterGate",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=lambda case: bool(case.features.lora),
        because="a request's adapter is not in the static buffers",
        hint="list the adapter under spec.engine.lora",
        source="SGLang #30988: LoRA eligibility of a batch",
        feature="LoRA adapters",
        refuses=lambda batch: batch.foreign_adapter,
    ),
    Rule(
        id="RankVoteGate",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=lambda case: case.features.data > 1,
        because="another data-parallel rank is idle or cannot run its part on a graph",
        hint="nothing to do: this is expected under uneven load",
        source="SGLang dp_attn.py: minimum over ranks, an idle rank makes all eager",
        feature="data-parallel attention",
        refuses=lambda batch: not batch.ranks_agree,
    ),
    Rule(
        id="SlotGate",
        phases=PREFILL,
        policies=(Policy.Full,),
        severity=Severity.Gate,
        when=always,
        because="the batch has more requests than the graph has slots",
        hint="set spec.graph.prefill: Breakable, where any number of requests shares a size",
        source="SGLang full_prefill_max_req",
        refuses=lambda batch: batch.slots is not None and batch.requests > batch.slots,
    ),
    Rule(
        id=PADDING_GATE,
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Gate,
        when=always,
        because=f"padding to the next size would compute over {PADDING_RATIO} times the rows, "
        f"and over {PADDING_ROWS} rows more",
        hint="add a size near the batch's token count to spec.graph.sizes.prefill",
        source="SGLang #31487; the absolute term keeps small batches on graphs (#40253)",
        refuses=lambda batch: padding_refused(batch.rows, batch.padded),
    ),
    Rule(
        id="Recompiled",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Gate,
        when=always,
        because="a compiled piece was traced again in this pass, so that the pass counts as eager",
        hint="report the model and the request as an issue: serving should never trace",
        source="SGLang #13469, #20441, #38354: recompiles in serving",
        refuses=lambda batch: batch.recompiled,
    ),
)

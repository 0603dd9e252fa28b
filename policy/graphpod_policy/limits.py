"""How long a sequence and how large a batch may be: what the service says, or what a pod derives where it says
nothing (Auto).

Plans are made before the model and its device are known, so they use the most that a pod could derive. The pod then
derives its own values, which are never larger.
"""

from collections.abc import Iterable

from graphpod_policy.enums import Device
from graphpod_policy.facts import NOTHING_KNOWN, Facts
from graphpod_policy.features import Features
from graphpod_policy.ladder.ladder import Ladder, memory_row

SMALL_CONTEXT = 2048
"""Tokens of one sequence by default, where a longer context costs too much: on a CPU, and where a captured decode step
reads the whole block table. On a GPU it is the least that must fit."""
CPU_BATCH = 8
"""Sequences that decode together by default on a CPU."""
GPU_BATCH = 256
"""The same on a GPU that has a decode ladder of this length."""
GATHERED_BATCH = 32
"""The same where a captured decode step reads the whole block table: 64 Ki tokens of it by SMALL_CONTEXT."""

MOST_CONTEXT = 1 << 20
"""Tokens; the API takes no longer context."""
MOST_BATCH = 1024
"""Sequences; the API takes no larger batch."""
MOST_PAGE = 256
"""Tokens; the API takes no larger page of the KV cache."""
MOST_SIZES = 128
"""Sizes; the API takes no longer ladder of a user's own, and no default one is longer."""


def own_ladder(sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes of a user's own ladder ascending, each once. ValueError beyond the bounds of the API."""
    found = tuple(sorted(set(sizes)))
    if not 1 <= len(found) <= MOST_SIZES:
        raise ValueError(f"must have 1 to {MOST_SIZES} sizes, has {len(found)}")
    if wrong := [size for size in found if not 1 <= size <= MOST_CONTEXT]:
        raise ValueError(f"must have sizes from 1 to {MOST_CONTEXT}, has {wrong[0]}")
    return found


def context(features: Features, facts: Facts = NOTHING_KNOWN) -> int:
    """Most tokens of one sequence, prompt and answer. Auto: the model's own length, at most SMALL_CONTEXT where longer
    ones cost too much; before the model is known, the most it can be.
    """
    if features.max_model_len is not None:
        return features.max_model_len
    own = facts.model.max_position if facts.model is not None else None
    longest = MOST_CONTEXT if own is None else min(own, MOST_CONTEXT)
    return min(longest, SMALL_CONTEXT) if features.device is Device.Cpu or facts.reads_whole_tables else longest


def least_context(features: Features, facts: Facts) -> int:
    """Tokens that the KV cache must hold for the service to start. Auto takes what there is, from SMALL_CONTEXT up."""
    longest = context(features, facts)
    return min(longest, SMALL_CONTEXT) if features.max_model_len is None else longest


def batch(features: Features, facts: Facts = NOTHING_KNOWN, sizes: Ladder = ()) -> int:
    """Most sequences of one decode pass. Auto: as many as the device's default decode ladder holds, at most GPU_BATCH
    (CPU_BATCH on a CPU); more where the user's own ladder, `sizes`, was captured for more.
    """
    return features.max_batch or max(_default_batch(features, facts), *sizes[-1:], 1)


def decode_sequences(features: Features) -> int:
    """The largest decode graph that a pass can need, in sequences. With speculative decoding each sequence of a graph
    has `verify_width` rows; a batch that is too large for drafts has one for each sequence and shares these graphs.
    """
    return -(-decode_rows(features, batch(features)) // features.verify_width)


def decode_rows(features: Features, sequences: int) -> int:
    """Rows of the largest decode pass of a batch of `sequences`."""
    drafting = min(sequences, features.speculative_max_batch or sequences)
    return max(sequences, drafting * features.verify_width)


def _default_batch(features: Features, facts: Facts) -> int:
    if features.device is Device.Cpu:
        return CPU_BATCH
    row = memory_row(facts.gpu_memory_bytes)
    most = min(GPU_BATCH, row.decode_split if features.tensor >= 4 else row.decode)
    return min(most, GATHERED_BATCH) if facts.reads_whole_tables else most

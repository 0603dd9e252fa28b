"""How much of a sequence a draft model has read, and how much it reads in front of a pass.

What it lacks are pages of a prefix whose text was decoded without drafts or that came back from the host tier, and
tokens that a sequence decoded plainly. That may be a whole prompt, so a pass has a bounded part of it in front. Until
all is read the sequence decodes plainly. So its length is certain: a plain pass gives one token.
"""

from collections.abc import Collection
from collections.abc import Sequence as List

from graphpod_runtime.engine.schedule.sequence import Sequence


def read_tokens(sequence: Sequence, end: int, drafted: Collection[int], page_size: int) -> int:
    """How many of the first `end` tokens were read, by what is noted of the sequence or of its pages: those that are
    all `drafted`."""
    pages, whole = sequence.pages, sequence.drafted // page_size
    while (whole + 1) * page_size <= end and pages[whole] in drafted:
        whole += 1
    return min(end, max(sequence.drafted, whole * page_size))


def shared_out(lacking: List[int], budget: int) -> tuple[int, ...]:
    """Tokens of each sequence that are read in front of a pass, of those that it lacks: `budget` in all."""
    reads = []
    for lack in lacking:
        reads.append(min(lack, budget))
        budget -= reads[-1]
    return tuple(reads)

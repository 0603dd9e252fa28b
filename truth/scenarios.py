"""What an engine is put through: schedules that every policy runs alike. The columns of the matrix."""

import random
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from graphpod_policy import Phase
from graphpod_runtime.engine.capture.debug import FaultKind
from graphpod_runtime.engine.pipeline import Pipeline
from graphpod_runtime.engine.schedule.scheduler import Limits, Scheduler
from graphpod_runtime.engine.schedule.sequence import Chunk, DecodeBatch, LogprobRequest, PrefillBatch, Sequence
from truth.engines import CHUNK, MOST_REQUESTS
from truth.models import VOCAB
from truth.recorded_schedule import RecordedSchedule

NEW_TOKENS = 12
FEW_TOKENS = 3
ALTERNATIVES = 3


def prompts(*lengths: int) -> list[list[int]]:
    """Random tokens, the same for the same lengths."""
    choose = random.Random(str(lengths))
    return [[choose.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def together(recorded: RecordedSchedule, wave: int, requests: list[list[int]], new: int = NEW_TOKENS) -> None:
    """All `requests` at once, as a server would run them: a pass ahead of what is known."""
    scheduler = Scheduler(recorded.pages, Limits.of(recorded.config, len(requests)), recorded.eos_ids)
    for index, request in enumerate(requests):
        scheduler.submit(recorded.sequence(f"{wave}.{index}", request, new))
    pipeline = Pipeline(scheduler, recorded)
    while pipeline.busy:
        pipeline.turn()


def several(recorded: RecordedSchedule) -> None:
    """Requests of mixed length; some need two prefill passes."""
    together(recorded, 0, prompts(1, 5, 17, 32, 40, 61))


def prefix_hit(recorded: RecordedSchedule) -> None:
    """Requests whose first pages another request has computed: they own the rest, and start behind it."""
    size = recorded.config.page_size
    (shared,) = prompts(2 * CHUNK)
    first = recorded.sequence("first", shared, NEW_TOKENS)
    first.pages = recorded.pages.take(len(shared) // size)
    for start in (0, CHUNK):
        prefill(recorded, first, start, start + CHUNK)
    for index, (hit, more) in enumerate(((size, 3), (CHUNK, 16), (2 * CHUNK - size, 1), (2 * CHUNK, 9))):
        (tail,) = prompts(more)
        request = recorded.sequence(f"hit.{index}", [*shared[:hit], *tail], NEW_TOKENS)
        owned = recorded.pages.take(-(-(more + FEW_TOKENS) // size))
        request.pages = first.pages[: hit // size] + owned
        token = prefill(recorded, request, hit, hit + more)
        for _ in range(FEW_TOKENS):
            request.tokens.append(token)
            (token,) = recorded.forward(DecodeBatch((request,))).tokens
            request.computed = len(request.tokens)
        recorded.pages.free(owned)
    recorded.pages.free(first.pages)


def prefill(recorded: RecordedSchedule, sequence: Sequence, start: int, end: int) -> int:
    """One chunk in a pass of its own; the token it yields."""
    sequence.computed = start
    (token,) = recorded.forward(PrefillBatch((Chunk(sequence, start, end),))).tokens
    sequence.computed = end
    return token


def chunk_tail(recorded: RecordedSchedule) -> None:
    """Prompts alone whose last chunk is tiny: 1, 1, 2 and 5 tokens behind full ones."""
    for wave, length in enumerate((CHUNK + 1, 2 * CHUNK + 1, 2 * CHUNK + 2, 3 * CHUNK + 5)):
        together(recorded, wave, prompts(length), FEW_TOKENS)


def one_to_many(recorded: RecordedSchedule) -> None:
    """1 to 32 requests at once, sizes of the decode ladder and others."""
    for wave, count in enumerate((1, 2, 3, 5, 8, 13, MOST_REQUESTS)):
        together(recorded, wave, prompts(*(1 + (7 * index + count) % 12 for index in range(count))), FEW_TOKENS)


class Name(StrEnum):
    """The scenarios."""

    Plain = "plain"
    PrefixHit = "prefix hit"
    ChunkTail = "chunk tail"
    Requests = "1–32 requests"
    OutputLogprobs = "output logprobs"
    InputLogprobs = "input logprobs"
    CaptureFault = "fault: capture"
    MemoryFault = "fault: memory"
    CheckFault = "fault: self-check"


class Scenario(NamedTuple):
    """One column. `fault` is met by the start of an engine of its own, in every phase that captures; it leads to one of
    the rules `degraded_by`.
    """

    name: Name
    run: Callable[[RecordedSchedule], None]
    wants: LogprobRequest = LogprobRequest()
    fault: FaultKind | None = None
    degraded_by: frozenset[str] = frozenset()


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(Name.Plain, several),
    Scenario(Name.PrefixHit, prefix_hit),
    Scenario(Name.ChunkTail, chunk_tail),
    Scenario(Name.Requests, one_to_many),
    Scenario(Name.OutputLogprobs, several, LogprobRequest(answer=ALTERNATIVES)),
    Scenario(Name.InputLogprobs, several, LogprobRequest(prompt=ALTERNATIVES)),
    Scenario(Name.CaptureFault, several, fault=FaultKind.Capture, degraded_by=frozenset({"CaptureFailed"})),
    Scenario(
        Name.MemoryFault,
        several,
        fault=FaultKind.CaptureOom,
        degraded_by=frozenset({"LadderMemory", "CaptureOutOfMemory"}),
    ),
    Scenario(Name.CheckFault, several, fault=FaultKind.SelfCheck, degraded_by=frozenset({"SelfCheckFailed"})),
)

FAULTY_SIZE = {Phase.Prefill: 16, Phase.Decode: 4}
"""The size whose capture or check fails: not the first one."""

"""The requests that an engine is put through, wave by wave: what the columns of the matrix run."""

import random
import time
from dataclasses import replace

from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.schedule.kv_space import KvSpace
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from truth.engines import CHUNK, MOST_REQUESTS
from truth.models import VOCAB
from truth.schedule.recorded_schedule import RecordedSchedule

NEW_TOKENS = 12
FEW_TOKENS = 3
FLUSH_SECONDS = 60


def prompts(*lengths: int) -> list[list[int]]:
    """Random tokens, the same for the same lengths."""
    choose = random.Random(str(lengths))
    return [[choose.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def served(recorded: RecordedSchedule, *waves: list[list[int]], new: int = NEW_TOKENS) -> int:
    """As `scheduled`: the prompt tokens that were found in the prefix cache."""
    return scheduled(recorded, *waves, new=new).kv.hit_tokens


def scheduled(recorded: RecordedSchedule, *waves: list[list[int]], new: int = NEW_TOKENS) -> Scheduler:
    """Each wave of requests at once, as a server runs them: a pass or more ahead of what is known, over one prefix
    cache."""
    limits = replace(Limits.of(recorded.config, max(map(len, waves))), prefix_cache=True, stages=recorded.stages)
    scheduler = Scheduler(recorded.pages, limits, recorded.eos_ids, recorded.host_tier)
    run_ahead = RunAhead(scheduler, recorded)
    for wave, requests in enumerate(waves):
        for index, request in enumerate(requests):
            scheduler.submit(recorded.sequence(f"{wave}.{index}", request, new))
        while run_ahead.busy:
            run_ahead.turn()
    scheduler.kv.flush(time.monotonic() + FLUSH_SECONDS, lambda: None)
    recorded.pages.free(scheduler.kv.tree.evict(recorded.pages.capacity).pages)
    return scheduler


def several(recorded: RecordedSchedule) -> None:
    """Requests of mixed length; some need two prefill passes."""
    served(recorded, prompts(1, 5, 17, 32, 40, 61))


def prefix_hit(recorded: RecordedSchedule) -> None:
    """Requests whose first pages another request has computed: they own the rest, and start behind it."""
    size = recorded.config.page_size
    (shared,) = prompts(2 * CHUNK)
    hits = {size: 3, CHUNK: 16, 2 * CHUNK - size: 1, 2 * CHUNK: 9}
    after = [[*shared[:hit], *prompts(more)[0]] for hit, more in hits.items()]
    found = served(recorded, [shared], after)
    assert found == sum(hits), f"the prefix cache had {found} tokens of {sum(hits)}"


def chunk_tail(recorded: RecordedSchedule) -> None:
    """Prompts alone whose last chunk is tiny: 1, 1, 2 and 5 tokens behind full ones."""
    lengths = (CHUNK + 1, 2 * CHUNK + 1, 2 * CHUNK + 2, 3 * CHUNK + 5)
    served(recorded, *(prompts(length) for length in lengths), new=FEW_TOKENS)


def one_to_many(recorded: RecordedSchedule) -> None:
    """1 to 32 requests at once, sizes of the decode ladder and others."""
    counts = (1, 2, 3, 5, 8, 13, MOST_REQUESTS)
    waves = (prompts(*(1 + (7 * index + count) % 12 for index in range(count))) for count in counts)
    served(recorded, *waves, new=FEW_TOKENS)


def preempted(recorded: RecordedSchedule) -> None:
    """Requests that have room at first and not for all of their answers."""
    pages = recorded.pages
    taken = pages.take(pages.available - 120 // recorded.config.page_size)
    try:
        scheduler = scheduled(recorded, prompts(9, 10, 11, 12, 13, 14), new=4 * NEW_TOKENS)
    finally:
        pages.free(taken)
    assert scheduler.preemptions, "no request was set back"


def hit_after_eviction(recorded: RecordedSchedule) -> None:
    """A prompt that others push out of the KV cache and that comes again, with more behind it; so do the others."""
    _pushed_out(recorded)


def hit_after_restart(recorded: RecordedSchedule) -> None:
    """The same. An engine whose folder has the pages of these texts computes no whole one of any prompt, and reads
    those of the first three."""
    host, size = recorded.host_tier, recorded.config.page_size
    files = None if host is None else host.files
    if host is None or files is None or not len(files.folder):
        _pushed_out(recorded)
        return
    before = files.hit_tokens, host.hit_tokens, files.read, host.loaded
    asked, kv = _pushed_out(recorded)
    hit, on_host, read, loaded = (
        now - then
        for now, then in zip((files.hit_tokens, host.hit_tokens, files.read, host.loaded), before, strict=True)
    )
    whole = [(length - 1) // size * size for length in asked]
    assert kv.hit_tokens == sum(whole), f"{kv.hit_tokens} tokens of {sum(whole)} were found"
    assert on_host >= hit >= sum(whole[:3]), f"{hit} tokens came from files, {on_host} from the host"
    assert (hit, on_host) == (read * size, loaded * size), f"{read} pages were read, {loaded} loaded"
    failed = {reason.value: count for reason, count in files.failures.items() if count}
    assert not failed, f"files: {failed}"


def _pushed_out(recorded: RecordedSchedule) -> tuple[list[int], KvSpace]:
    """The tokens of each prompt, and where its pages were."""
    pages, size = recorded.pages, recorded.config.page_size
    taken = pages.take(pages.available - 2 * CHUNK * 3 // size)
    first, second, third = prompts(2 * CHUNK, 3 * CHUNK, 2 * CHUNK + 5)
    again = [[*one, *tail] for one, tail in zip((first, second, third), prompts(9, 3, 1), strict=True)]
    asked = [first, second, third, *again]
    try:
        scheduler = scheduled(recorded, *([one] for one in asked))
    finally:
        pages.free(taken)
    return [len(one) for one in asked], scheduler.kv


def embeddings(recorded: RecordedSchedule) -> None:
    """Prompts of one pass and of several, some of which begin like others; a third of them are for texts."""
    first = prompts(1, 5, 17, 32, 40, 61)
    after = [[*before, *more] for before, more in zip(first, prompts(2, 7, 1, 30, 3, 9), strict=True)]
    assert served(recorded, first, after, new=FEW_TOKENS), "no prefix was found"

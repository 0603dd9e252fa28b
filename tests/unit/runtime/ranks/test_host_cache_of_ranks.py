"""The host tier over ranks: each keeps its part of a page, and all load, lose and do without the same pages."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from graphpod_policy import EngineConfig, Policy, SpeculativeMethod
from graphpod_runtime.cache.host_tier import CopyFailed, HostTier, LoadCosts, PoolParts
from graphpod_runtime.cache.moves import Move, Stored
from graphpod_runtime.distributed.pipeline import Pipeline, Position
from graphpod_runtime.distributed.slots import BYTES, Slots
from graphpod_runtime.engine.ranks.copies import FollowingCopies, LeadingCopies
from graphpod_runtime.engine.ranks.messages import Copied, Load, Order, Store
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.pass_answers import PassAnswer
from graphpod_runtime.engine.ranks.stage_runner import FirstStage
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence as Request
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.near_head import write_head
from tests.unit.runtime.ranks.asking import Ask, Told
from tests.unit.runtime.ranks.conftest import POLICIES, alone, config, sampled
from tests.unit.runtime.ranks.rank_forks import Answer, RankForks

PROMPTS = random_prompts(4, shortest=40, longest=50, seed=3)
AGAIN = Ask([*PROMPTS, *([*prompt, 7] for prompt in PROMPTS)], max_tokens=6, prefixes=True)
"""The second round finds nothing of the first on the device."""
PAGES = 31
"""Room for two of the prompts."""
PAGE = 3 * 2 * 4 * 3 * 16 * 4
"""Bytes of keys and values of four tokens: three layers of three heads, in float32."""
SHAPES = ({"tensor": 3}, {"pipeline": 2}, {"tensor": 3, "pipeline": 2})
DRAFTED = {SpeculativeMethod.Eagle: PAGE // 3 // 3, SpeculativeMethod.DraftModel: PAGE}
"""Bytes of a page at each of three ranks: of a head's one layer each has its part, of a draft model the whole."""


def asked(folder: Path, prefill: Policy, decode: Policy, drafted: int = 0, **changes: Any) -> EngineConfig:
    """Over ranks, all with room for as many pages, of which what drafts has `drafted` bytes each."""
    layers = 3 if changes.get("pipeline", 1) == 1 else 2  # of the first stage
    room = PAGES * (PAGE * layers // 3 // changes.get("tensor", 1) + drafted)
    sizes = {"kv_cache_bytes": room, "max_model_len": 64, "host_cache_bytes": 256 * PAGE}
    return config(folder, prefill, decode, **sizes, **changes)


def parts(**shape: int) -> list[int]:
    """Bytes of a page at each rank."""
    layers = [3] if shape.get("pipeline", 1) == 1 else [2, 1]
    tensor = shape.get("tensor", 1)
    return [PAGE * count // 3 // tensor for count in layers for _ in range(tensor)]


@pytest.fixture(scope="session")
def wanted(smollm2: Path) -> list[list[int]]:
    """What one rank writes without the tier."""
    (told,) = alone(smollm2, AGAIN, max_model_len=64)
    return told.texts


def told(found: Answer) -> Told:
    assert not found.failure
    assert found.kv_pages == PAGES
    (one,) = found.told
    return one


@pytest.mark.parametrize(
    ("prefill", "decode", "shape", "method"),
    [
        # `make test` has the cheapest, the rest takes minutes of a processor.
        *sampled((Policy.Disabled, Policy.Disabled, {"tensor": 3}, SpeculativeMethod.Eagle), count=1),
        *sampled(
            *((*policies, shape, None) for shape in SHAPES for policies in POLICIES),
            *((Policy.Breakable, Policy.Full, {"tensor": 3}, method) for method in DRAFTED),
            count=0,
        ),
    ],
)
def test_evicted_prefixes_come_back_at_each_rank(
    ranks: RankForks,
    smollm2: Path,
    tmp_path: Path,
    wanted: list[list[int]],
    prefill: Policy,
    decode: Policy,
    shape: dict[str, int],
    method: SpeculativeMethod | None,
) -> None:
    """Also where a head or a model drafts, whose keys and values have no place in the tier."""
    changes: dict[str, Any] = {}
    if method is not None:
        draft = write_head(smollm2, tmp_path, method) if method is SpeculativeMethod.Eagle else smollm2
        changes = {"speculative": method, "speculative_draft": str(draft), "speculative_steps": 3}
        changes |= {"drafted": DRAFTED[method], "decode_sizes": (1, 4, 8, 16), "speculative_max_batch": 4}
    found = ranks.answer(asked(smollm2, prefill, decode, **changes, **shape), AGAIN, modes="reload")
    one = told(found)
    assert one.texts == wanted
    assert (found.drafted > 0) is (method is not None)
    assert one.on_host > sum(map(len, PROMPTS)) // 2
    assert one.on_host <= one.cached
    page = sum(parts(**shape))
    assert [loaded for _, loaded in one.moved] == [one.on_host // 4 * part for part in parts(**shape)]
    stored = one.moved[0][0] // parts(**shape)[0]
    assert [bytes_stored for bytes_stored, _ in one.moved] == [stored * part for part in parts(**shape)]
    assert stored * page > one.on_host // 4 * page
    assert one.failures == {}


@pytest.mark.parametrize(
    ("fault", "failures", "shape"),
    sampled(
        ("host-cache:Store:2@1", {"Store": 1}, {"pipeline": 2}),
        ("host-cache:Load:1@2", {"Load": 1}, {"tensor": 3}),
        ("host-cache:Store:2@0", {"Store": 1}, {"tensor": 3}),
        count=1,
    ),
)
def test_a_copy_that_one_rank_cannot_launch_is_lost_at_all(
    ranks: RankForks,
    smollm2: Path,
    wanted: list[list[int]],
    fault: str,
    failures: dict[str, Any],
    shape: dict[str, int],
) -> None:
    """Nothing that the pool holds is trusted; what comes later is."""
    config = asked(smollm2, Policy.Breakable, Policy.Full, **shape)
    one = told(ranks.answer(config, AGAIN, modes="reload", faults=fault))
    assert one.texts == wanted
    assert one.failures == failures
    assert 0 < one.on_host < sum(map(len, PROMPTS))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_do_without_a_pool_that_one_cannot_allocate(
    ranks: RankForks, smollm2: Path, wanted: list[list[int]], rank: int
) -> None:
    config = asked(smollm2, Policy.Breakable, Policy.Full, tensor=3)
    one = told(ranks.answer(config, AGAIN, modes="reload", faults=f"host-cache:Allocation:1@{rank}"))
    assert one.texts == wanted
    assert (one.on_host, one.moved, one.cached) == (0, [], 0)


class Slow:
    """Is Copies, of which nothing lands; what is called for is noted."""

    page_bytes, at_once, slots, failed_allocations = 10, 4, 8, 0
    store_seconds = load_seconds = 0.0

    def __init__(self) -> None:
        self.log: list[object] = []
        self.fails = False

    def allocate(self) -> None: ...

    def wait_for_all(self) -> None:
        self.log.append("all")

    def store(self, moved: Mapping[int, int]) -> Stored:
        if self.fails:
            raise CopyFailed("no room")
        self.log.append(("store", moved))
        return Stored(OnItsWay(), OnItsWay())

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move]) -> Move:
        self.log.append(("load", list(slots), list(pages)))
        return OnItsWay()

    def wait(self, moves: Iterable[Move]) -> None:
        self.log.append(("waits for", len(list(moves))))


class OnItsWay:
    """Is Move."""

    landed = False


def test_another_rank_waits_for_its_own_copies_where_those_of_the_first_have_landed() -> None:
    copies, said = Slow(), list[Copied]()
    following = FollowingCopies(HostTier(copies, LoadCosts(0, 0, 1), 4), 4, 2, said.append)
    following.launch(Load(1, [3], [7]))
    following.launch(Store(2, [3], [9]))
    following.launch(Store(3, [4], [7]))
    assert copies.log == [
        ("load", [3], [7]),
        ("waits for", 1),  # its slot is read
        ("store", {3: 9}),
        ("waits for", 1),  # its page is on its way
        ("store", {4: 7}),
    ]
    copies.log.clear()
    reading = Request("a", list(range(12)), 12, 1)
    reading.pages = [5, 7, 9]
    following.join(PrefillBatch((Chunk(reading, 0, 4),)))
    assert copies.log == [], "it reaches page 5 alone"
    following.join(PrefillBatch((Chunk(reading, 4, 8),)))
    assert copies.log == [("waits for", 2)]
    copies.fails = True
    following.launch(Store(4, [5], [5]))
    assert said == [
        Copied(2, 1, "", 0, 10),
        Copied(2, 2, "", 10, 10),
        Copied(2, 3, "", 20, 10),
        Copied(2, 4, "store: no room", 20, 10),
    ]


class Noting:
    """Is Others to a LeadingCopies, whose calls are noted in `log`."""

    def __init__(self, log: list[object]) -> None:
        self.log, self.words, self.slots = log, "", 0

    def send(self, order: Order) -> None:
        self.log.append(order)

    def copied(self, number: int) -> str:
        self.log.append(("all have copied", number))
        return self.words

    def host_slots(self) -> int:
        return self.slots


def test_the_first_rank_lets_the_others_go_on_before_it_waits_for_their_copies() -> None:
    copies = Slow()
    others = Noting(copies.log)
    leading = LeadingCopies(copies, cast(Others, others), PoolParts((10, 20), 8, 3), lambda: copies.log.append("go on"))
    assert leading.page_bytes == 30
    leading.store({5: 6})
    others.words = "rank 1: load: no room"
    with pytest.raises(CopyFailed, match="rank 1: load: no room"):
        leading.load([5], [7], [])
    assert copies.log == [
        "go on", Store(1, [5], [6]), ("store", {5: 6}), ("all have copied", 1),
        "go on", Load(2, [5], [7]), ("load", [5], [7]), ("all have copied", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("heard", "slots"), [(0, 3), (2, 3), (5, 5), (9, 8)])
def test_no_slot_is_used_that_one_rank_has_not(heard: int, slots: int) -> None:
    """Each has three at Ready, whether its heart has said so yet or not, and the first one has eight by now."""
    others = Noting([])
    others.slots = heard
    assert LeadingCopies(Slow(), cast(Others, others), PoolParts((10, 10), 16, 3), lambda: None).slots == slots


@pytest.mark.parametrize(
    ("slots", "answers", "taken"),
    [
        (False, "", 0),
        (False, "TTTT", 0),
        (False, "TTTTT", 1),
        (False, "LTNTLNT", 1),
        (False, "TTTTTTT", 3),
        (True, "TTTTTTTT", 0),
        (True, "TTTTTTTTT", 1),
        (True, "LLNL", 1),  # three slots each, of eight
        (True, "TTTLL", 1),
        (True, "G", 1),  # larger than all slots
    ],
)
def test_the_last_stage_is_not_left_with_answers_that_have_no_room(slots: bool, answers: str, taken: int) -> None:
    """It would carry out no order to copy, while the first stage waits for that."""
    tokens = torch.zeros(4, dtype=torch.int64, device="meta")
    sizes = {"T": 1, "N": 1, "L": 2 * BYTES // 4 + 1, "G": 8 * BYTES // 4 + 1}
    kinds = {"T": PassAnswer.Tokens, "N": PassAnswer.Nothing}
    waiting = deque(
        (None, SimpleNamespace(undecided=SimpleNamespace(chosen=tokens, logits=torch.zeros(size, device="meta"))), kind)
        for size, kind in ((sizes[one], kinds.get(one, PassAnswer.Logits)) for one in answers)
    )
    pipeline = Pipeline(Position(0, 2, 3), {}, {(4, 0): cast(Slots, object())} if slots else {})
    counts: list[int] = []
    stage = SimpleNamespace(_naming=nullcontext, _unanswered=waiting, _take_answers=counts.append, pipeline=pipeline)
    FirstStage.let_others_go_on(cast(FirstStage, stage))
    assert counts == [taken]

"""The host tier over ranks: each keeps its part of a page, and all load, lose and do without the same pages."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import EngineConfig, Policy
from graphpod_runtime.cache.host_tier import CopyFailed, HostTier, LoadCosts
from graphpod_runtime.cache.moves import Move, Stored
from graphpod_runtime.engine.ranks.copies import FollowingCopies
from graphpod_runtime.engine.ranks.messages import Copied, Load, Store
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence as Request
from tests.unit.runtime.conftest import random_prompts
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


def asked(folder: Path, prefill: Policy, decode: Policy, **shape: int) -> EngineConfig:
    """Over ranks of this `shape`, all with room for as many pages."""
    layers = 3 if shape.get("pipeline", 1) == 1 else 2  # of the first stage
    room = PAGES * PAGE * layers // 3 // shape.get("tensor", 1)
    return config(folder, prefill, decode, kv_cache_bytes=room, max_model_len=64, host_cache_bytes=256 * PAGE, **shape)


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
    ("prefill", "decode", "shape"),
    sampled(*((*policies, shape) for shape in SHAPES for policies in POLICIES), count=1),
)
def test_evicted_prefixes_come_back_at_each_rank(
    ranks: RankForks,
    smollm2: Path,
    wanted: list[list[int]],
    prefill: Policy,
    decode: Policy,
    shape: dict[str, int],
) -> None:
    one = told(ranks.answer(asked(smollm2, prefill, decode, **shape), AGAIN, modes="reload"))
    assert one.texts == wanted
    assert one.on_host > sum(map(len, PROMPTS)) // 2
    assert one.on_host <= one.cached
    page = sum(parts(**shape))
    assert [loaded for _, loaded in one.moved] == [one.on_host // 4 * part for part in parts(**shape)]
    stored = one.moved[0][0] // parts(**shape)[0]
    assert [bytes_stored for bytes_stored, _ in one.moved] == [stored * part for part in parts(**shape)]
    assert stored * page > one.on_host // 4 * page
    assert one.failures == {}


@pytest.mark.parametrize(
    ("fault", "failures"),
    sampled(
        ("host-cache:Store:2@1", {"Store": 1}),
        ("host-cache:Load:1@2", {"Load": 1}),
        ("host-cache:Store:2@0", {"Store": 1}),
        count=1,
    ),
)
def test_a_copy_that_one_rank_cannot_launch_is_lost_at_all(
    ranks: RankForks, smollm2: Path, wanted: list[list[int]], fault: str, failures: dict[str, Any]
) -> None:
    """Nothing that the pool holds is trusted; what comes later is."""
    shape = {"tensor": 3}
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

"""Copies of the host tier are launched turn by turn while sequences decode. What they bring is checked by each pass of
`known_slots.Engine`."""

import pytest

from graphpod_runtime.cache.host_tier import EVICTED_AT_ONCE, HostCacheFailure
from graphpod_runtime.engine.schedule.scheduler import Limits
from graphpod_runtime.engine.schedule.sequence import Sequence
from tests.unit.runtime.engine.known_slots import SIZE, Engine

LIMITS = Limits(max_model_len=400, max_batch=3, prefill_chunk=8, page_size=SIZE, max_queue=2, prefix_cache=True)
PAGES = 40
"""Of a prefix."""


def prompt(number: int, pages: int = PAGES) -> list[int]:
    return [number * 1000 + place for place in range(SIZE * pages)]


def two_prefixes(turn_pages: int) -> Engine:
    """A cache with one prefix, and one of the same length that was evicted for it."""
    engine = Engine(62, LIMITS, ahead=True, slots=200, turn_pages=turn_pages)
    for number in (1, 2):
        engine.submit(f"computed {number}", [*prompt(number), 5], 1)
        engine.run()
    return engine


def decoding(engine: Engine, tokens: int = 200) -> Sequence:
    """A request that decodes already and has taken some of the free pages, when all copies have landed."""
    one = engine.submit("decodes", [3, 4, 5], tokens)
    for _ in range(40):
        engine.step()
    return one


@pytest.mark.parametrize("delays", [(1, 1), (0, 0)])
def test_a_load_and_its_eviction_are_spread_over_turns_while_a_sequence_decodes(delays: tuple[int, int]) -> None:
    engine = two_prefixes(turn_pages=6)
    one, tier = decoding(engine), engine.kv.host
    assert tier is not None
    engine.copies.delays = delays
    stored, loaded, decoded = tier.stored, tier.loaded, len(one.tokens)
    hit = engine.submit("hit", [*prompt(1), 6], 2)
    stores, loads = list[int](), list[int]()
    while hit.launched <= (hit.cached or 0):
        engine.step()
        stores.append(len(engine.copies.moved["store"]))
        loads.append(len(engine.copies.moved["load"]))
        assert len(loads) < 30
    assert hit.cached == SIZE * PAGES
    assert (tier.stored - stored, tier.loaded - loaded) == (sum(stores), sum(loads))
    assert hit.cached_on_host == tier.hit_tokens == SIZE * sum(loads) >= SIZE * PAGES * 3 // 4
    assert max(stores) == max(loads) == 6
    assert sum(map(bool, loads)) <= -(-sum(loads) // 6) + 1, "all but the first and the last are full"
    assert len(one.tokens) - decoded >= len(loads) - 2, "every turn was a pass of what decodes"
    admitted = next(turn for turn, pages in enumerate(stores) if pages)
    assert tier.wait_seconds == len(loads) - 1 - admitted
    engine.run()


def test_no_more_than_two_turns_are_in_flight_where_copies_are_slow() -> None:
    engine = two_prefixes(turn_pages=6)
    decoding(engine)
    engine.copies.delays = 100, 100
    engine.submit("hit", [*prompt(1), 6], 2)
    stores = []
    for _ in range(5):
        engine.step()
        stores.append(len(engine.copies.moved["store"]))
    assert [pages for pages in stores if pages] == [6, 6]


def test_where_nobody_decodes_all_is_launched_at_once() -> None:
    engine = two_prefixes(turn_pages=6)
    tier = engine.kv.host
    assert tier is not None
    engine.copies.delays, waits = (100, 100), tier.waits
    hit = engine.submit("hit", [*prompt(1), 6], 2)
    engine.step()
    assert SIZE * len(engine.copies.moved["load"]) == tier.hit_tokens >= SIZE * PAGES // 2
    assert hit.launched > (hit.cached or 0), "its pass is launched, and waits on the device"
    assert (tier.waits - waits, tier.waits_for_all) == (1, 0)


def test_pages_that_are_left_for_what_decodes_leave_first() -> None:
    engine = two_prefixes(turn_pages=2)
    one, tier = decoding(engine), engine.kv.host
    assert tier is not None
    engine.submit("computed", prompt(9, 30), 2)
    engine.copies.delays = 100, 100
    while not (first := engine.copies.moved["store"]):
        engine.step()
    free = engine.allocator.free_pages
    assert {page for page in free if tier.awaited([page])} >= set(first)
    assert len(free) >= EVICTED_AT_ONCE
    owned = len(one.pages)
    while len(one.pages) == owned:
        engine.step()
    assert tier.stored < engine.kv.tree.evicted, "others wait for their turn"


def test_a_prompt_begins_when_its_first_pages_have_left() -> None:
    engine = two_prefixes(turn_pages=2)
    decoding(engine)
    tier, computed = engine.kv.host, engine.submit("computed", prompt(9, 30), 2)
    assert tier is not None
    while not computed.launched:
        engine.step()
    assert tier.stored < engine.kv.tree.evicted, "the last ones have not"
    engine.run()


@pytest.mark.parametrize("later", [1, 4])
def test_who_awaits_a_load_that_fails_goes_back_to_the_queue_and_is_computed(later: int) -> None:
    engine = two_prefixes(turn_pages=2)
    decoding(engine)
    tier, computed, hits = engine.kv.host, engine.computed, engine.kv.hit_tokens
    assert tier is not None
    engine.copies.fails_at = engine.copies.loads + later
    hit = engine.submit("hit", [*prompt(1), 6], 2)
    while hit.cached is None:
        engine.step()
    assert hit.cached_on_host > 0
    shares = engine.submit("shares", [*prompt(1, 20), 7], 2)
    ended = engine.run()
    assert {"hit", "shares"} <= ended.keys()
    assert (hit.cached, hit.preemptions, engine.scheduler.preemptions) == (0, 0, 0)
    assert (tier.hit_tokens, hit.cached_on_host, engine.kv.hit_tokens - hits) == (0, 0, shares.cached)
    assert engine.computed - computed >= len(hit.tokens), "the passes checked what they read"
    assert tier.failures == dict.fromkeys(HostCacheFailure, 0) | {HostCacheFailure.Load: 1}
    assert tier.waits_for_all == 1, "once, for what the failed copy may still write"
    engine.kv.settle()
    assert engine.kv.available == engine.kv.capacity


def test_a_pass_waits_for_the_pages_that_are_wiped_in_front_of_it_alone() -> None:
    engine = two_prefixes(turn_pages=2)
    one, tier = decoding(engine), engine.kv.host
    assert tier is not None
    while one.length % SIZE != 1:
        engine.step()
    engine.copies.delays = 100, 100
    engine.submit("computed", prompt(9, 30), 2)
    while not engine.copies.moved["store"]:
        engine.step()
    waits, free = tier.waits, engine.allocator.free_pages
    awaited = next(page for page in free if tier.awaited([page]))
    engine.allocator.unclean.add(next(page for page in free if not tier.awaited([page])))
    engine.step()
    assert tier.waits == waits
    engine.allocator.unclean.add(awaited)
    engine.step()
    assert (tier.waits, tier.waits_for_all) == (waits + 1, 0)


def test_pages_of_a_load_that_failed_stay_out_of_reach_until_their_sequence_is_set_back() -> None:
    engine = two_prefixes(turn_pages=2)
    decoding(engine)
    tier = engine.kv.host
    assert tier is not None
    hit = engine.submit("hit", [*prompt(1), 6], 2)
    while hit.cached is None:
        engine.step()
    engine.copies.fails_at = engine.copies.loads + 1
    awaited = [move for _, move in hit.awaits]
    tier.turn(everything=True)
    assert any(move.lost for move in awaited)
    assert [engine.kv.there(hit) for _ in range(2)] == [0, 0], "asking does not forget"
    with pytest.raises(AssertionError, match="a pass reads pages whose load was given up"):
        tier.join(awaited)
    assert "hit" in engine.run()
    assert hit.cached_on_host == 0

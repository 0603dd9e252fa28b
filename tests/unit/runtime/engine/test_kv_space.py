"""Pages of sequences and of the prefix cache, under a scheduler, against what each slot really holds."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Node
from graphpod_runtime.engine.schedule.batch import PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import DoesNotFit, QueueFull
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.wire.messages import FinishReason
from tests.tries import tries

from .known_slots import END, SIZE, Engine


def test_a_second_turn_computes_what_is_new() -> None:
    engine = Engine(30)
    first = engine.submit("first", list(range(1, 11)), 5)
    engine.run()
    assert (first.cached, engine.computed) == (0, 14)
    # 14 tokens are computed: three whole pages. The fifth token of the answer never ran.
    second = engine.submit("second", [*first.tokens, 30, 31], 1)
    engine.run()
    assert (second.cached, engine.computed) == (12, 14 + 17 - 12)
    assert (engine.kv.asked_tokens, engine.kv.hit_tokens) == (27, 12)


def test_one_row_is_always_computed() -> None:
    engine = Engine(30)
    for id, cached in (("first", 0), ("same", 4)):
        assert engine.submit(id, list(range(1, 9)), 1).cached is None
        last = engine.live[id]
        engine.run()
        assert last.cached == cached, "the last of two whole pages is computed again"


@pytest.mark.parametrize(
    ("wants", "cached"),
    [
        (LogprobRequest(answer=2), 12),
        (LogprobRequest(prompt=0), 0),
        (LogprobRequest(prompt=0, prompt_start=9), 8),
        (LogprobRequest(prompt=0, prompt_start=8), 4),
        (LogprobRequest(prompt=0, prompt_start=14), 12),
    ],
)
def test_a_prompt_whose_tokens_are_scored_is_found_up_to_the_first_of_them(wants: LogprobRequest, cached: int) -> None:
    engine, prompt = Engine(30), list(range(1, 15))
    engine.submit("first", prompt, 1)
    engine.run()
    second = engine.submit("second", prompt, 1, wants=wants)
    batch = engine.scheduler.next()
    assert isinstance(batch, PrefillBatch)
    assert (second.cached, batch.chunks[0].start) == (cached, cached)
    assert list(batch.chunks[0].scored)[:1] == ([second.unscored] if wants.prompt is not None and cached < 12 else [])


@pytest.mark.parametrize("more", [{"salt": "other"}, {"adapter": "other"}])
def test_salts_and_adapters_share_nothing(more: dict[str, str]) -> None:
    engine, prompt = Engine(30), list(range(1, 15))
    engine.submit("first", prompt, 1)
    engine.run()
    other, same = engine.submit("other", prompt, 1, **more), engine.submit("same", prompt, 1)
    engine.run()
    assert (other.cached, same.cached) == (0, 12)


def test_who_begins_like_a_prompt_on_its_way_waits_for_it_once_and_holds_up_nobody() -> None:
    engine, prompt = Engine(30), [1, 2, 3, 4] * 6
    engine.submit("first", prompt, 1)
    engine.step()
    second, other = engine.submit("second", [*prompt, 5], 1), engine.submit("other", [7, 7, 7], 1)
    engine.step()
    assert (second.cached, other.cached) == (None, 0)
    engine.step()
    assert second.cached is None
    while second.cached is None:
        engine.step()
    assert second.cached == 24
    engine.run()
    assert engine.computed == 24 + 3 + 1


def test_who_shares_little_with_a_prompt_on_its_way_does_not_wait() -> None:
    engine = Engine(30)
    engine.submit("first", [1] * 5, 1)
    second = engine.submit("second", [1] * 4 + [2] * 8, 1)
    engine.step()
    assert second.cached == 0


TEXT = st.lists(st.sampled_from([1, 1, 1, 2]), max_size=6).map(
    lambda kinds: [kind for kind in kinds for _ in range(SIZE)]
)
"""Whole pages, of few kinds."""


@tries(300)
@given(ours=TEXT, others=TEXT, cached=TEXT, more=st.integers(1, SIZE))
def test_a_prompt_waits_for_another_one_where_that_spares_half_of_its_work(
    ours: list[int], others: list[int], cached: list[int], more: int
) -> None:
    engine = Engine(30)
    engine.submit("cached", [*cached, 3], 1)
    engine.run()
    ours = [*ours, *[2] * more]
    one, other = Sequence("one", ours, len(ours), 1), Sequence("other", others, len(others), 1)
    pages = range(SIZE, len(ours), SIZE)
    shared = max((end for end in pages if ours[:end] == others[:end]), default=0)
    there = max((end for end in pages if ours[:end] == cached[:end]), default=0)
    assert engine.kv.spares_half(one, other) == (shared > 0 and shared - there >= (len(ours) - there) / 2)


def test_who_waits_for_a_prompt_goes_on_when_that_one_is_aborted() -> None:
    engine = Engine(30)
    engine.submit("first", [1] * 20, 1)
    engine.step()
    second = engine.submit("second", [1] * 20, 1)
    engine.step()
    engine.abort("first")
    engine.step()
    assert second.cached == 0


def test_a_preempted_sequence_computes_nothing_twice_that_is_in_the_tree() -> None:
    engine = Engine(7)
    engine.submit("old", [1] * 8, 8)
    new = engine.submit("new", [2] * 8, 20)
    while not engine.scheduler.preemptions:
        engine.step()
    assert (new.pages, new.computed, len(new.tokens)) == ([], 0, 13)
    assert engine.run() == {"old": FinishReason.Length, "new": FinishReason.Length}
    assert engine.computed == 15 + 27, "each row once; the last tokens of both never ran"
    assert (new.cached, engine.kv.asked_tokens) == (0, 16), "counted once"


def test_memory_that_nobody_reads_goes_to_who_needs_it_before_anyone_is_set_back() -> None:
    engine = Engine(10)
    for number in range(20):
        engine.submit(str(number), [number + 1] * 17, 3)
        engine.run()
    assert engine.scheduler.preemptions == 0
    assert engine.kv.tree.evicted > 0
    assert engine.kv.available == 10
    assert engine.allocator.available < 3, "the rest is prefixes"


def test_a_row_that_is_not_finite_takes_what_it_read_out_of_the_tree() -> None:
    engine, prompt = Engine(30), [1] * 10
    engine.submit("first", prompt, 1)
    engine.run()
    engine.submit("bad", [*prompt, 2, 3], 5)
    assert engine.step(lambda _: -1) == {"bad": FinishReason.Error}
    assert len(engine.allocator.take_unclean()) == 3
    assert engine.allocator.available == 30
    third = engine.submit("third", prompt, 1)
    engine.run()
    assert third.cached == 0


def test_a_prefix_that_left_for_the_host_comes_back_and_is_not_computed() -> None:
    engine = Engine(10, slots=40)
    for number in range(4):
        engine.submit(str(number), [number + 1] * 17, 3)
        engine.run()
    computed, tier = engine.computed, engine.kv.host
    assert tier is not None
    again = engine.submit("again", [1] * 17, 3)
    engine.run()
    assert (again.cached, engine.computed - computed) == (16, 3)
    assert (tier.loaded, tier.hit_tokens, tier.skipped_tokens) == (4, 16, 0)
    assert (engine.kv.hit_tokens, tier.waits) == (16, 2), "nothing else ran: for pages to leave, and for the load"


def test_who_decodes_does_not_wait_for_the_load_of_another_one() -> None:
    engine = Engine(16, slots=40)
    for number in range(4):
        engine.submit(str(number), [number + 1] * 17, 3)
        engine.run()
    old = engine.submit("old", [9] * 5, 20)
    engine.step()
    loading = engine.submit("loading", [1] * 17, 3)
    lengths = []
    while loading.launched <= 16:
        engine.step()
        lengths.append((len(old.tokens), loading.cached, loading.launched))
    # A decode pass was due; then two of them run while the load is on its way.
    assert lengths == [(7, None, 0), (8, 16, 16), (9, 16, 16), (9, 16, 17)]
    engine.run()


@pytest.mark.parametrize("slots", [12, 60])
@pytest.mark.parametrize("delays", [(0, 4), (4, 0), (3, 3)])
def test_stores_and_loads_at_any_pace_give_every_prefix_as_it_was(slots: int, delays: tuple[int, int]) -> None:
    """Hits, evictions and aborts while copies are on their way, each line as late as it may be."""
    chance, engine = random.Random(slots), Engine(20, ahead=True, slots=slots)
    engine.copies.delays = delays
    for number in range(300):
        text = chance.randrange(6)
        prompt = [*[text + 1] * chance.randrange(9, 18), chance.choice([7, 8])]
        with suppress(QueueFull):
            engine.submit(str(number), prompt, chance.randrange(1, 12))
        for _ in range(chance.randrange(4)):
            engine.step()
        if engine.live and not chance.randrange(4):
            engine.abort(chance.choice(list(engine.live)))
    engine.run()
    engine.copies.turn += max(delays)
    engine.kv.settle()
    assert engine.kv.available == engine.kv.capacity
    assert engine.copies.loads > 30


def _nodes(tree: RadixTree) -> Iterator[Node]:
    nodes = list(tree.roots.values())
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        yield node


def test_without_the_cache_nothing_is_kept() -> None:
    engine = Engine(30, Limits(40, 4, 8, SIZE, 4))
    for id in "ab":
        engine.submit(id, [1] * 12, 2)
        engine.run()
    assert (engine.allocator.available, engine.kv.hit_tokens, engine.computed) == (30, 0, 26)


def test_what_ends_while_a_pass_is_in_flight_keeps_its_pages_until_that_has_landed() -> None:
    engine = Engine(30, ahead=True)
    one = engine.submit("one", [1] * 8, 9)
    for _ in range(4):
        engine.step()
    assert one.in_flight
    engine.abort("one")
    assert (len(one.pages), engine.kv.available) == (3, 27)
    engine.step()
    assert (one.pages, engine.kv.available, engine.kv.tree.size) == ([], 30, 2)


def test_an_id_may_be_open_again_while_its_former_sequence_leaves() -> None:
    engine = Engine(30, ahead=True)
    former = engine.submit("one", [1] * 8, 9)
    for _ in range(4):
        engine.step()
    engine.abort("one")
    again = engine.submit("one", [1] * 8, 9)
    engine.step()
    assert (former.pages, former.in_flight, again.in_flight) == ([], False, True)
    assert engine.run() == {"one": FinishReason.Length}
    assert (len(again.tokens), engine.kv.available) == (17, 30)


PROMPT = st.tuples(st.integers(0, 3), st.integers(1, 30), st.integers(0, 3))
"""Which text, how much of it, and how many tokens of its own."""
EVENTS = st.one_of(
    st.tuples(st.just("submit"), PROMPT, st.integers(1, 12), st.sampled_from(["", "", "salt"]), st.booleans()),
    st.tuples(st.just("abort"), st.integers(0, 40)),
    *[st.just(("pass",))] * 3,
)


@pytest.mark.parametrize("ahead", [False, True])
@tries(300)
@given(
    pages=st.integers(10, 30),
    events=st.lists(EVENTS, max_size=60),
    seed=st.integers(0, 2**16),
    slots=st.sampled_from([0, 4, 40]),
    failing=st.sampled_from([0, 0, 2, 5]),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    turn_pages=st.sampled_from([1, 3, 1000]),
)
def test_whatever_comes_every_hit_is_the_prefix_and_no_page_is_lost_or_shared(
    ahead: bool,
    pages: int,
    events: list[Any],
    seed: int,
    slots: int,
    failing: int,
    delays: tuple[int, int],
    turn_pages: int,
) -> None:
    engine = Engine(pages, ahead=ahead, slots=slots, failing=failing, turn_pages=turn_pages)
    chance = random.Random(seed)
    engine.copies.delays = delays
    texts = [[random.Random(text).choice([5, 6]) for text in range(40 * text, 40 * text + 40)] for text in range(4)]
    submitted, ended = [], []

    def token(_: Sequence) -> int:
        return chance.choice([END, 5, 5, 5, 6, 6, 6, 7, 7, -1])

    for number, (kind, *rest) in enumerate(events):
        if kind == "submit":
            (text, length, own), max_tokens, salt, scored = rest
            prompt = [*texts[text][:length], *(chance.choice([5, 6]) for _ in range(own))]
            wants = LogprobRequest(prompt=0, prompt_start=chance.randrange(40)) if scored else LogprobRequest()
            try:
                engine.submit(str(number), prompt, max_tokens, salt=salt, wants=wants)
            except (QueueFull, DoesNotFit):
                continue
            submitted.append(str(number))
        elif kind == "abort":
            if (id := str(rest[0])) in engine.live:
                engine.abort(id)
                ended.append(id)
        else:
            ended += engine.step(token)
    ended += engine.run()
    assert sorted(ended) == sorted(submitted)
    engine.check()
    engine.copies.turn += max(delays)
    engine.kv.settle()
    assert engine.kv.tree.host_size == sum(len(node.pages) for node in _nodes(engine.kv.tree) if node.host)
    assert engine.kv.available == engine.kv.capacity
    assert engine.kv._held == engine.kv._bookmarks == {}

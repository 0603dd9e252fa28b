"""What the device keeps of sequences is what the host would send, whatever comes and goes between two steps."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.forward.seats import Seats
from graphpod_runtime.engine.schedule.batch import DecodeBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.rows.seat_rows_contract import StepRows
from tests.tries import tries

PAGE, ROWS, PAGES = 4, 3, 8


def seats() -> Seats:
    return Seats(
        PAGE, StepRows(*(torch.full((ROWS,), 77) for _ in range(4)), torch.full((ROWS, PAGES), 77)), whole_tables=True
    )


def check(subject: Seats, batch: DecodeBatch) -> None:
    """A step's inputs are those that are made of what the host knows."""
    got, expected = subject.step(batch), inputs_of(batch, PAGE)
    assert got.tokens.tolist() == expected.tokens.tolist()
    assert got.positions.tolist() == expected.positions.tolist()
    assert got.yields == expected.yields
    for name in ("slots", "lengths", "starts"):
        assert getattr(got, name).tolist() == getattr(expected, name).tolist(), name
    for one, table in zip(batch.sequences, got.tables.tolist(), strict=True):
        assert table[: len(one.pages)] == one.pages
    padding = [buffer[len(batch.sequences) :] for buffer in subject._into]
    assert [rows.unique().tolist() for rows in padding if rows.numel()] in ([], [[0], [0], [0], [1], [0]])


class World:
    """Sequences on a cache, and the seats of those that decode."""

    def __init__(self) -> None:
        self.seats = seats()
        self.live: list[Sequence] = []
        self._made = 0

    def prompt(self, length: int, first_page: int) -> None:
        """A sequence whose prompt's last pass gives its first token."""
        if len(self.live) == ROWS:
            self.live.pop(0)
        self._made += 1
        pages = list(range(first_page, first_page + -(-length // PAGE)))
        one = Sequence(str(self._made), [self._made] * length, length, 99, pages=pages)
        self.live.append(one)
        self._prefill(one)

    def set_back(self, index: int, first_page: int) -> None:
        """It owned other pages before."""
        if self.live:
            one = self.live[index % len(self.live)]
            one.pages = list(range(first_page, first_page + -(-len(one.tokens) // PAGE)))
            self._prefill(one)

    def _prefill(self, one: Sequence) -> None:
        self.seats.seat((one,), (len(one.tokens),), new=True)
        self._yielded((one,))

    def step(self, members: list[bool]) -> None:
        """Some of them decode."""
        running = tuple(one for one, runs in zip(self.live, members, strict=False) if runs)
        running = tuple(one for one in running if len(one.tokens) < PAGES * PAGE)
        if not running:
            return
        for one in running:
            if len(one.tokens) > len(one.pages) * PAGE:
                one.pages.append(40 + len(one.tokens))
        check(self.seats, DecodeBatch(running))
        self._yielded(running)

    def force(self, index: int, token: int) -> None:
        """Somebody else decides on the latest token."""
        if self.live:
            self.live[index % len(self.live)].tokens[-1] = token

    def _yielded(self, running: tuple[Sequence, ...]) -> None:
        tokens = torch.tensor([10 * len(one.tokens) for one in running])
        seated = self.seats.keep(tokens)
        self.seats.landed(seated, tokens)
        for one, token in zip(running, tokens.tolist(), strict=True):
            one.tokens.append(token)
        self.seats.verify()


NUMBERS = st.integers(0, 30)
EVENTS = st.one_of(
    st.tuples(st.just("prompt"), st.integers(1, 20), NUMBERS),
    st.tuples(st.just("set_back"), NUMBERS, NUMBERS),
    st.tuples(st.just("force"), NUMBERS, NUMBERS),
    *[st.tuples(st.just("step"), st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))] * 3,
)


@tries(200)
@given(st.lists(EVENTS, max_size=40))
def test_every_step_reads_what_the_host_would_have_sent(events: list[Any]) -> None:
    world = World()
    for kind, *arguments in events:
        getattr(world, kind)(*arguments)


def test_a_token_is_read_where_it_was_drawn_before_the_host_knows_it() -> None:
    subject = seats()
    one = Sequence("a", [5, 6, 7], 3, 9, pages=[2])
    subject.seat((one,), (3,), new=True)
    one.launched = 3
    first = subject.keep(torch.tensor([41]))
    assert subject.step(DecodeBatch((one,))).tokens.tolist() == [41]
    one.launched = 4
    second = subject.keep(torch.tensor([-1]))
    one.pages.append(3)
    inputs = subject.step(DecodeBatch((one,)))
    assert (inputs.tokens.tolist(), inputs.positions.tolist()) == ([0], [4]), "no token can be read, either"
    subject.landed(first, torch.tensor([41]))
    subject.verify()
    subject.landed(second, torch.tensor([-1]))
    subject.verify()


def test_only_a_page_that_is_crossed_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = seats()
    one = Sequence("a", [5, 6], 2, 99, pages=[2])
    subject.seat((one,), (2,), new=True)
    sent: list[int] = []
    right = torch.from_numpy

    def noting(array: Any) -> torch.Tensor:
        sent.append(array.size)
        return right(array)

    changes: list[list[int]] = []
    for end in range(3, 10):
        one.launched = end - 1
        subject.keep(torch.tensor([9]))
        if end > len(one.pages) * PAGE:
            one.pages.append(end)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "from_numpy", noting)
            subject.seat((one,), (end,))
        changes.append(list(sent))
        sent.clear()
    assert changes == [[], [], [3], [], [], [], [3]]


def test_the_check_sees_what_the_host_does_not_know_of() -> None:
    subject = seats()
    one = Sequence("a", [5, 6], 2, 99, pages=[2])
    subject.seat((one,), (2,), new=True)
    subject.verify()
    subject._state[subject._seat_of[one], 1] += 1
    with pytest.raises(AssertionError, match=r"request 'a', column 1 .* the device has 3, the host 2"):
        subject.verify()


def test_a_sequence_a_page_short_is_refused() -> None:
    batch = DecodeBatch((Sequence("short", [1] * 5, 5, 9, pages=[3]),))
    with pytest.raises(IndexError, match="'short' owns 1 pages of 4 tokens"):
        seats().step(batch)

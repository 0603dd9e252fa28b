"""A request whose logits are not finite ends alone; the pod stays, and the next owner of its pages is right. A token id
that the model does not have never reaches the device."""

from collections.abc import Callable, Iterator

import pytest
import torch

from graphpod_policy import Policy
from graphpod_runtime.engine.forward.sampling.sampler import greedy
from graphpod_runtime.engine.loop import Loop
from graphpod_runtime.engine.offline import NotInModel, NoToken, generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.wire.bounds import outside
from graphpod_runtime.wire.messages import Command, Event, Finished, FinishReason, Submit, Tokens
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.engine.test_loop import ListLink

TOKENS = 12
POLICIES = [(Policy.Disabled, Policy.Disabled), (Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable)]
KINDS = (Sampling(), Sampling(1.0, 0.9, seed=4, top_k=30, min_p=0.01))
BAD = 3
"""Which of eight requests is spoilt."""


def submits() -> list[Command]:
    """Eight requests, greedy and sampled in turn, which ask for log-probabilities in turn, too."""
    return [
        Submit(
            str(index), prompt, TOKENS, how.temperature, how.top_p, how.seed, ignore_eos=True,
            logprobs=2 if index % 4 > 1 else None, top_k=how.top_k, min_p=how.min_p,
        )
        for index, prompt in enumerate(random_prompts(8, shortest=3, longest=12))
        for how in (KINDS[index % 2],)
    ]  # fmt: skip


class SpoilingLink(ListLink):
    """Spoils the keys of one request's pages after its third token as a fault of the model would."""

    def __init__(self, runner: Runner, bad: int, value: float, *turns: list[Command]) -> None:
        super().__init__(*turns)
        self.loop: Loop
        self._runner, self._bad, self._value = runner, str(bad), value
        self.spoilt: list[int] = []

    def send(self, events: list[Event]) -> None:
        super().send(events)
        sequence = self.loop.scheduler._open.get(self._bad)
        if not self.spoilt and sequence is not None and len(sequence.tokens) - sequence.prompt_len == 3:
            self.spoilt = list(sequence.pages)
            cache = self._runner.engine.attention.cache
            cache.keys[:, self.spoilt] = cache.values[:, self.spoilt] = self._value


def serve(runner: Runner, bad: int, value: float) -> SpoilingLink:
    """All eight, to their ends."""
    link = SpoilingLink(runner, bad, value, submits())
    link.loop = Loop(runner, link, lambda: None)
    while link.turns or link.loop.busy:
        link.loop.turn()
    return link


def text(link: ListLink, id: str) -> list[int]:
    return [token for event in link.of(id) if isinstance(event, Tokens) for token in event.ids]


@pytest.mark.parametrize("bad", [BAD, BAD - 1], ids=["sampled", "greedy"])
@pytest.mark.parametrize("policies", POLICIES)
def test_a_poisoned_row_in_a_batch_of_eight_ends_alone_and_its_pages_serve_the_next(
    started: Callable[..., Runner], policies: tuple[Policy, Policy], bad: int
) -> None:
    # A budget that is measured would order prefills and decodes by the machine's speed.
    clean, runner = (started(*policies, prefill_budget=128) for _ in range(2))
    # As many pages as eight need, so that the next requests get those that were spoilt.
    expected = serve(clean, -1, 0.0)
    link = serve(runner, bad, torch.nan)
    for index in range(8):
        id = str(index)
        if index == bad:
            # Its fourth token was in flight when its pages were spoilt.
            assert text(link, id) == text(expected, id)[:4]
            ended = link.of(id)[-1]
            assert isinstance(ended, Finished)
            assert ended.reason is FinishReason.Error
            assert "no finite logits" in (ended.message or "")
        else:
            assert text(link, id) == text(expected, id)
            assert link.of(id)[-1] == Finished(id, FinishReason.Length)
    assert runner.counters.value("graphpod_nonfinite_logits_total") == 1
    assert clean.counters.value("graphpod_nonfinite_logits_total") == 0
    cache = runner.engine.attention.cache
    pages = runner.pages
    # What others have computed since lies in the prefix cache, on pages that were spoilt among others.
    pages.free(link.loop.scheduler.kv.tree.evict(pages.capacity).pages)
    taken = pages.take(pages.available)
    assert set(link.spoilt) <= set(taken)
    pages.free(taken)
    prompts = random_prompts(8, shortest=60, longest=70, seed=9)
    assert generate(runner, prompts, 8, ignore_eos=True) == generate(clean, prompts, 8, ignore_eos=True)
    assert cache.keys.isfinite().all()
    assert cache.values.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_row_is_not_finite_by_its_largest_logit(value: float) -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0], [1.0, 5.0, -torch.inf], [1.0, value, 2.0], [value] * 3])
    assert greedy(logits).tolist() == [1, 1, 2 if value == -torch.inf else -1, -1]


@pytest.mark.parametrize("where", ["prompt", "step"])
def test_infinite_logits_end_a_request_too(started: Callable[..., Runner], where: str) -> None:
    runner = started(*POLICIES[0])
    head, calls = runner.engine.model.head, []

    def overflowing(hidden: torch.Tensor) -> torch.Tensor:
        calls.append(hidden)
        return head(hidden) * (torch.inf if len(calls) == (1 if where == "prompt" else 3) else 1)

    runner.engine.model.head = overflowing  # type: ignore[method-assign]
    with pytest.raises(NoToken, match="prompt 0: the model gave no finite logits"):
        generate(runner, [[5, 6, 7]], 4, Sampling(1.0, seed=1), ignore_eos=True)
    assert runner.pages.available == runner.pages.capacity


class Walked(list[int]):
    """Counts how often its tokens are walked."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return super().__iter__()


def test_the_loop_walks_no_prompt_to_check_it(started: Callable[..., Runner]) -> None:
    """The front has refused ids that the model does not have: a second look at 2048 of them takes the loop 50 µs."""
    prompt = Walked([5, 210])
    link = ListLink([Submit("right", prompt, 2, ignore_eos=True)])
    loop = Loop(started(*POLICIES[0]), link, lambda: None)
    while link.turns or loop.busy:
        loop.turn()
    assert link.of("right")[-1] == Finished("right", FinishReason.Length)
    assert prompt.walks == 1, "it is copied, and that is all"


def test_generation_without_a_front_refuses_a_token_id_outside_the_model(started: Callable[..., Runner]) -> None:
    runner = started(*POLICIES[0])
    assert runner.vocabulary == 211
    with pytest.raises(NotInModel, match=r"token id 999 at position 2 .* 0 to 210"):
        generate(runner, [[1, 2], [1, 2, 999]], 2)


def test_an_id_is_outside_from_the_vocabularys_size_on() -> None:
    assert outside([0, 9], 10) is None
    assert outside([], 10) is None
    assert "token id 10 at position 2" in (outside([0, 9, 10], 10) or "")
    assert "token id -3 at position 0" in (outside([-3], 10) or "")

"""With drafts an engine gives the texts that it gives without them: greedy and drawn, whatever happens to requests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase, Policy, SpeculativeMethod
from graphpod_runtime.engine.forward import pass_in_flight
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.offline import Answer, answers
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.drafting import PlainReason
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import FinishReason
from tests.unit.runtime.conftest import random_prompts, write_llama
from truth.drafting.oracle import knows

NGRAM = {"speculative": SpeculativeMethod.Ngram, "speculative_max_batch": 8}
POLICIES = [
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Breakable, Policy.Breakable),
]
SAMPLINGS = {
    "greedy": Sampling(),
    "drawn": Sampling(0.9, 0.95, seed=7),
    "filtered": Sampling(1.3, top_k=12, min_p=0.02, seed=8),
    "processed": Sampling(
        0.8,
        seed=9,
        processing=LogitProcessing(frequency=1.2, presence=0.4, bias={5: 2.0}, min_tokens=9, bad_words=[[7], [8, 9]]),
    ),
}
Start = Callable[..., Runner]


def texts(found: list[Answer]) -> list[tuple[int, ...]]:
    return [answer.tokens for answer in found]


def both(
    undrafted: Start,
    started: Start,
    policies: tuple[Policy, Policy],
    prompts: list[list[int]],
    new: int,
    sampling: Sampling,
    **more: Any,
) -> tuple[list[Answer], list[Answer], Runner]:
    """The answers without drafts, and with drafts most of which are right."""
    asked = {"max_tokens": new, "sampling": sampling, "ignore_eos": True} | more
    plain = answers(undrafted(*policies), prompts, **asked)
    runner = started(*policies, **NGRAM)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)))
    return plain, answers(runner, prompts, **asked), runner


def counted(runner: Runner) -> tuple[float, float]:
    """Drafts so far, and those of them that were right."""
    return (
        runner.counters.value("graphpod_speculation_proposed_tokens_total", method="Ngram"),
        runner.counters.value("graphpod_speculation_accepted_tokens_total", method="Ngram"),
    )


@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("policies", POLICIES)
def test_texts_are_those_without_drafts(
    undrafted: Start, drafting: Start, policies: tuple[Policy, Policy], kind: str
) -> None:
    before = counted(drafting(*policies, **NGRAM))
    plain, drafted, runner = both(undrafted, drafting, policies, random_prompts(8), 40, SAMPLINGS[kind])
    assert texts(drafted) == texts(plain)
    proposed, accepted = (now - then for now, then in zip(counted(runner), before, strict=True))
    assert 0.3 * proposed < accepted < proposed
    fallbacks = runner.counters.value("graphpod_graph_fallbacks_total", phase=Phase.Decode)
    assert (fallbacks == 0) is (policies[1] is not Policy.Disabled)
    assert runner.pages.available == runner.pages.capacity


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_any_number_of_requests(undrafted: Start, drafting: Start, count: int) -> None:
    plain, drafted, _ = both(undrafted, drafting, POLICIES[1], random_prompts(count, seed=count), 25, Sampling())
    assert texts(drafted) == texts(plain)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_any_number_of_drafts(undrafted: Start, started: Start, steps: int) -> None:
    prompts = random_prompts(4)
    plain = answers(undrafted(), prompts, 30, ignore_eos=True)
    runner = started(**NGRAM, speculative_steps=steps)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)), wrong=11)
    assert texts(answers(runner, prompts, 30, ignore_eos=True)) == texts(plain)


def test_log_probabilities_are_those_without_drafts(undrafted: Start, drafting: Start) -> None:
    wants = LogprobRequest(answer=3, prompt=1)
    plain, drafted, _ = both(undrafted, drafting, POLICIES[1], random_prompts(6), 30, Sampling(), wants=wants)
    assert texts(drafted) == texts(plain)
    for one, other in zip(plain, drafted, strict=True):
        assert [logprob.token for logprob in other.logprobs] == list(one.tokens)
        assert [logprob.logprob for logprob in other.logprobs] == pytest.approx(
            [logprob.logprob for logprob in one.logprobs], abs=1e-4
        )
        assert len(other.prompt_logprobs) == len(one.prompt_logprobs)


def test_prompt_look_up_finds_what_a_text_repeats(undrafted: Start, started: Start) -> None:
    """The model's own loops, and prompts that are loops."""
    prompts = [[5, 6, 7, 8] * 8, [11, 12] * 14, *random_prompts(2)]
    plain = answers(undrafted(), prompts, 60, ignore_eos=True)
    runner = started(**NGRAM)
    assert texts(answers(runner, prompts, 60, ignore_eos=True)) == texts(plain)
    assert runner.counters.value("graphpod_speculation_proposed_tokens_total", method="Ngram") > 0


def test_the_time_of_a_pass_holds_that_of_its_drafts(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but for the look-ups, each of which takes five seconds."""
    runner, clock = started(**NGRAM), [0.0]
    proposer = runner.engine.seats.proposer

    def propose(*arguments: Any) -> Found:
        clock[0] += 5
        return proposer.propose(*arguments)

    runner.engine.seats.proposer = SimpleNamespace(propose=propose)
    monkeypatch.setattr(pass_in_flight, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    answers(runner, random_prompts(2), 10, ignore_eos=True)
    assert runner.counters.value("graphpod_forward_passes_total", phase=Phase.Decode) * 5 == clock[0] > 0
    for name in ("graphpod_forward_duration_seconds", "graphpod_forward_launch_duration_seconds"):
        decoded = [
            one.value for one in runner.counters.snapshot() if (one.name, one.labels.get("phase")) == (name, "decode")
        ]
        assert sum(decoded) == clock[0]


class Served:
    """Requests of one server-like run: prefix cache, EOS, aborts, pages that are short."""

    def __init__(self, runner: Runner, **limits: Any) -> None:
        self.limits = replace(Limits.of(runner.config, 64), prefix_cache=True, **limits)
        self.scheduler = Scheduler(runner.pages, self.limits, runner.eos_ids)
        self.run_ahead, self.runner = RunAhead(self.scheduler, runner), runner
        self.got: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}

    def submit(self, id: str, prompt: list[int], new: int, sampling: Sampling | None = None, **more: Any) -> None:
        self.got[id] = []
        self.scheduler.submit(Sequence(id, list(prompt), len(prompt), new, sampling or Sampling(), **more))

    def turn(self) -> None:
        for progress in self.run_ahead.turn():
            self.got[progress.sequence.id].append(progress.token)
            if progress.finish is not None:
                self.ends[progress.sequence.id] = progress.finish

    def drain(self) -> None:
        while self.run_ahead.busy:
            self.turn()


def waves(served: Served, sampling: Sampling, **more: Any) -> None:
    """Prompts with chunk tails, then some that begin like them and like their answers."""
    first = random_prompts(6, shortest=30, longest=70)
    for index, prompt in enumerate(first):
        served.submit(f"a{index}", prompt, 20, sampling, **more)
    served.drain()
    for index, prompt in enumerate(first):
        served.submit(f"b{index}", [*prompt, *served.got[f"a{index}"][:9], 3 + index], 20, sampling, **more)
    served.drain()


def ends_at_each_place(served: Served, prompt: list[int], text: list[int]) -> None:
    """`prompt`, answered with `text`, ends at each token of it by a stop and by a length, and all pages come back."""
    for place, token in enumerate(text):
        first = text.index(token)
        served.submit(f"s{place}", prompt, len(text), stop_ids=(token,), ignore_eos=True)
        served.submit(f"l{place}", prompt, place + 1, ignore_eos=True)
        served.drain()
        assert (served.got[f"s{place}"], served.ends[f"s{place}"]) == (text[: first + 1], FinishReason.Stop)
        assert (served.got[f"l{place}"], served.ends[f"l{place}"]) == (text[: place + 1], FinishReason.Length)
    assert served.scheduler.kv.available == served.runner.pages.capacity


def test_the_device_knows_what_the_host_does_whoever_is_preempted(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "seats")
    served = Served(started(kv_cache_bytes=400 << 10, **NGRAM))
    waves(served, Sampling(), ignore_eos=True)
    assert served.scheduler.preemptions > 0


class Always:
    """Drafts the same tokens, whatever was written."""

    def __init__(self, drafts: list[int]) -> None:
        self._drafts = torch.tensor(drafts)

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        return Found(self._drafts.expand(len(seats), -1), torch.ones(len(seats), dtype=torch.bool))


def test_a_wrong_draft_that_is_not_finite_stays_alone(started: Start, tmp_path: Path) -> None:
    def load(*arguments: Any) -> Any:
        model = load_model(*arguments)
        for name, parameter in model.module().named_parameters():
            if "embed" in name:
                parameter.data[77] = torch.nan
        return model

    def ends(runner: Runner) -> set[FinishReason]:
        served = Served(runner)
        if isinstance(runner.engine.seats, DraftingSeats):
            runner.engine.seats.proposer = Always([77, 77, 77])
        for index, prompt in enumerate(random_prompts(4, seed=5, shortest=3, longest=9)):
            served.submit(str(index), [token for token in prompt if token != 77], 12, ignore_eos=True)
        served.drain()
        return set(served.ends.values())

    settings = {"folder": write_llama(tmp_path, tied=False), "load": load}
    assert ends(started(**settings)) == ends(started(**settings, **NGRAM)) == {FinishReason.Length}


def test_only_drafts_that_have_room_are_proposed(undrafted: Start, started: Start) -> None:
    prompts = random_prompts(4)
    plain = answers(undrafted(), prompts, 2, ignore_eos=True)
    runner = started(**NGRAM, speculative_steps=5)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)), wrong=10**6)
    assert texts(answers(runner, prompts, 2, ignore_eos=True)) == texts(plain)
    assert runner.counters.value("graphpod_speculation_proposed_tokens_total", method="Ngram") == 0


@pytest.mark.parametrize(
    ("kv_cache_bytes", "kind"),
    [
        pytest.param(8 << 20, "drawn", id="room-drawn"),
        pytest.param(400 << 10, "greedy", id="preempted-greedy"),
        pytest.param(8 << 20, "greedy", id="room-greedy", marks=pytest.mark.slow),
        pytest.param(400 << 10, "drawn", id="preempted-drawn", marks=pytest.mark.slow),
    ],
)
def test_prefix_hits_chunk_tails_and_preemptions(started: Start, kind: str, kv_cache_bytes: int) -> None:
    sampling = SAMPLINGS[kind]
    plain = Served(started(kv_cache_bytes=kv_cache_bytes))
    waves(plain, sampling, ignore_eos=True)
    runner = started(kv_cache_bytes=kv_cache_bytes, **NGRAM)
    drafted = Served(runner)
    prompts = {one: [] for one in plain.got}
    first = random_prompts(6, shortest=30, longest=70)
    for index, prompt in enumerate(first):
        prompts[f"a{index}"] = [*prompt]
        prompts[f"b{index}"] = [*prompt, *plain.got[f"a{index}"][:9], 3 + index]
    knows(runner, ([*prompts[id], *tokens] for id, tokens in plain.got.items()))
    waves(drafted, sampling, ignore_eos=True)
    assert drafted.got == plain.got
    assert drafted.scheduler.kv.hit_tokens > 0
    assert (drafted.scheduler.preemptions > 0) is (kv_cache_bytes < 1 << 20)
    assert drafted.scheduler.kv.available == runner.pages.capacity


def test_ends_stops_and_lengths_within_accepted_runs(undrafted: Start, started: Start) -> None:
    """Every token of a text is the stop of a request once, so a stop lies at each place of an accepted run."""
    (prompt,) = random_prompts(1, shortest=9, longest=9)
    (plain,) = answers(undrafted(), [prompt], 16, ignore_eos=True)
    text = list(plain.tokens)
    ends_at_each_place(Served(knows(started(**NGRAM), [[*prompt, *text]], wrong=10**6)), prompt, text)


def test_aborts_in_flight_lose_no_page_and_change_no_other_text(undrafted: Start, started: Start) -> None:
    prompts = random_prompts(4, shortest=9, longest=30)
    plain = answers(undrafted(), prompts, 30, ignore_eos=True)
    runner = started(**NGRAM)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)))
    served = Served(runner)
    for index, prompt in enumerate(prompts):
        served.submit(str(index), prompt, 30, ignore_eos=True)
    for _ in range(5):
        served.turn()
    assert served.scheduler.abort("1")
    served.turn()
    assert served.scheduler.abort("3")
    served.drain()
    for index in (0, 2):
        assert served.got[str(index)] == list(plain[index].tokens)
    assert served.scheduler.kv.available == runner.pages.capacity


@pytest.mark.parametrize("policies", POLICIES)
def test_a_rejected_draft_leaves_nothing_readable(
    undrafted: Start, started: Start, monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy]
) -> None:
    """Poison spoils every slot behind a sequence's known text before each pass, those of rejected drafts included."""
    prompts = random_prompts(8)
    plain = answers(undrafted(*policies), prompts, 30, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison,seats,addresses")
    runner = started(*policies, **NGRAM)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)), wrong=2)
    assert texts(answers(runner, prompts, 30, ignore_eos=True)) == texts(plain)


def test_lockstep_and_running_ahead_give_one_text(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "lockstep")
    plain, drafted, _ = both(started, started, POLICIES[1], random_prompts(8), 30, SAMPLINGS["drawn"])
    assert texts(drafted) == texts(plain)


def test_above_max_batch_passes_are_plain_and_texts_the_same(undrafted: Start, started: Start) -> None:
    prompts = random_prompts(6)
    plain = answers(undrafted(), prompts, 30, ignore_eos=True)
    runner = started(**NGRAM | {"speculative_max_batch": 2}, decode_sizes=(1, 2))
    given = {"method": "Ngram", "steps": 3, "maxBatch": 2, "auto": []}
    assert runner.report.as_dict()["speculative"] == given
    served = Served(runner)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)))
    for index, prompt in enumerate(prompts):
        served.submit(str(index), prompt, 10 if index < 4 else 30, ignore_eos=True)
    served.drain()
    for index, answer in enumerate(plain):
        assert served.got[str(index)] == list(answer.tokens)[: 10 if index < 4 else 30]
    drafting = served.scheduler.drafting
    assert drafting is not None
    assert drafting.plain[PlainReason.Batch] > 0
    assert runner.counters.value("graphpod_speculation_accepted_tokens_total", method="Ngram") > 0
    # Two sequences of four rows, and six of one: the same graph.
    assert runner.counters.value("graphpod_graph_fallbacks_total", phase=Phase.Decode) == 0

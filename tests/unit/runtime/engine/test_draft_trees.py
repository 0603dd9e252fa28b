"""Drafts as trees change no text, whatever they hold; the right branch becomes text like any other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import ExitCode, KvCacheDtype, Policy, SpeculativeMethod
from graphpod_policy.start.footprint import kept_states_bytes
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.schedule.drafting import PlainReason
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from tests.unit.runtime.conftest import random_prompts, write_family, write_llama
from tests.unit.runtime.engine.test_draft_heads import (
    Start,
    assert_texts_stay,
    counted,
    drafted_by,
    known_facts,
    recorded_drafts,
    reference,
)
from tests.unit.runtime.engine.test_host_cache import rounds
from tests.unit.runtime.engine.test_speculation import POLICIES, SAMPLINGS, Served, ends_at_each_place, texts, waves
from tests.unit.runtime.near_head import write_head
from truth.drafting.oracle import knows
from truth.drafting.random_head import random_head

EAGER = (Policy.Disabled, Policy.Disabled)
TREE = {"speculative_topk": 3, "speculative_draft_tokens": 7}


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer, which a head can repeat but for the first token of a text."""
    return write_llama(tmp_path_factory.mktemp("shallow"), num_hidden_layers=1)


@pytest.fixture(scope="module")
def eagle(shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its head."""
    return write_head(shallow, tmp_path_factory.mktemp("eagle"), SpeculativeMethod.Eagle)


@pytest.mark.parametrize(("policies", "kind"), [(POLICIES[1], "drawn"), (POLICIES[2], "greedy")])
def test_texts_are_those_without_drafts(
    started: Start, shallow: Path, eagle: Path, policies: tuple[Policy, Policy], kind: str
) -> None:
    assert_texts_stay(started, shallow, policies, kind, drafted_by(eagle, **TREE, decode_sizes=(2, 8)))


DEEP = {"speculative_steps": 6, "speculative_topk": 4, "speculative_draft_tokens": 20}
"""Trees whose right branches are moved over the ends of pages."""


def test_prefix_hits_chunk_tails_and_preemptions(
    started: Start, shallow: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over FP8, with NaN wherever nothing may be read, and the device's lengths compared with the host's."""
    fp8 = {"folder": shallow, "kv_cache_dtype": KvCacheDtype.Fp8}
    plain = Served(started(*EAGER, **fp8))
    waves(plain, SAMPLINGS["drawn"], ignore_eos=True)
    first = random_prompts(6, shortest=30, longest=70)
    prompts = {f"a{index}": prompt for index, prompt in enumerate(first)}
    prompts |= {f"b{index}": [*one, *plain.got[f"a{index}"][:9], 3 + index] for index, one in enumerate(first)}
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison,seats,addresses")
    runner = started(kv_cache_bytes=66 << 10, decode_sizes=(1, 2, 4), **fp8, **drafted_by(eagle, **DEEP))
    drafted = Served(knows(runner, ([*prompts[id], *tokens] for id, tokens in plain.got.items()), strict=True))
    waves(drafted, SAMPLINGS["drawn"], ignore_eos=True)
    assert drafted.got == plain.got
    assert drafted.scheduler.kv.hit_tokens > 0
    assert drafted.scheduler.preemptions > 0
    assert drafted.scheduler.kv.available == runner.pages.capacity
    assert counted(runner)[1] > runner.counters.value("graphpod_speculation_passes_total", method="Eagle")


def test_ends_stops_and_lengths_within_right_branches(started: Start, shallow: Path, eagle: Path) -> None:
    """Every token of a text is the stop of a request once, up to the longest text that the service has."""
    (prompt,) = random_prompts(1, shortest=9, longest=9)
    asked = {"folder": shallow, "max_model_len": 21}
    (plain,) = answers(started(*EAGER, **asked), [prompt], 12, ignore_eos=True)
    text = list(plain.tokens)
    served = Served(knows(started(*EAGER, **asked, **drafted_by(eagle, **DEEP)), [[*prompt, *text]], strict=True))
    ends_at_each_place(served, prompt, text)


@pytest.mark.parametrize("window", [4, 24])
def test_windows_that_end_in_a_tree_or_in_front_of_it(started: Start, tmp_path: Path, window: int) -> None:
    folder, head = write_family(tmp_path / "model", "gemma3", sliding_window=window), tmp_path / "head"
    head.mkdir()
    write_head(folder, head, SpeculativeMethod.Eagle)
    prompts = random_prompts(3, shortest=20)
    plain = answers(started(*EAGER, folder=folder), prompts, 12, ignore_eos=True)
    runner = started(*EAGER, folder=folder, **drafted_by(head, **DEEP))
    known = ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True))
    knows(runner, known, strict=True)
    assert texts(answers(runner, prompts, 12, ignore_eos=True)) == texts(plain)
    assert counted(runner)[1] > 0


def test_what_a_host_tier_brings_back_is_the_text(
    started: Start, shallow: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "reload")
    expected, _ = rounds(started(*EAGER, folder=shallow), tier=None)
    runner = started(*EAGER, folder=shallow, host_cache_bytes=4 << 20, **drafted_by(eagle, **DEEP))
    found, scheduler = rounds(knows(runner, expected.values(), strict=True), tier=runner.host_tier)
    assert found == expected
    assert scheduler.kv.hit_tokens > 100
    assert counted(runner)[1] > 0


def test_more_drafts_are_right_than_of_a_chain(started: Start, shallow: Path, eagle: Path) -> None:
    """Branches that are not the likeliest are taken, or a tree would bring what a chain does."""
    prompts, right = random_prompts(8), []
    for tree in ({}, TREE):
        runner = started(*EAGER, folder=shallow, **drafted_by(eagle, **tree))
        answers(runner, prompts, 20, ignore_eos=True)
        passes = runner.counters.value("graphpod_speculation_passes_total", method="Eagle")
        right.append(counted(runner)[1] / passes)
    assert right[1] > right[0]


def test_log_probabilities_are_those_of_the_right_branch(started: Start, shallow: Path, eagle: Path) -> None:
    prompts, asked = random_prompts(4), {"ignore_eos": True, "wants": LogprobRequest(answer=3)}
    plain = answers(started(*EAGER, folder=shallow), prompts, 20, **asked)
    drafted = answers(started(*EAGER, folder=shallow, **drafted_by(eagle, **TREE)), prompts, 20, **asked)
    for one, other in zip(plain, drafted, strict=True):
        assert [logprob.token for logprob in other.logprobs] == list(one.tokens)
        expected = [logprob.logprob for logprob in one.logprobs]
        assert [logprob.logprob for logprob in other.logprobs] == pytest.approx(expected, abs=1e-4)


def test_requests_whose_penalties_read_the_text_decode_plainly_next_to_trees(
    started: Start, shallow: Path, eagle: Path
) -> None:
    prompts, got = random_prompts(4), []
    samplings = [SAMPLINGS["processed"], Sampling(), SAMPLINGS["drawn"], SAMPLINGS["processed"]]
    for drafts in ({}, drafted_by(eagle, **TREE)):
        served = Served(started(*EAGER, folder=shallow, **drafts))
        for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
            served.submit(str(index), prompt, 15, sampling, ignore_eos=True)
        served.drain()
        got.append(served.got)
    assert got[0] == got[1]
    drafting = served.scheduler.drafting
    assert drafting is not None
    # The first token of each comes with its prompt; one pass may be planned behind the last one.
    assert 2 * 14 <= drafting.plain[PlainReason.Penalties] <= 2 * 15


@pytest.mark.parametrize("form", [(1, 3, 2), (5, 2, 3), (4, 4, 20)], ids=str)
def test_any_form_of_tree(started: Start, shallow: Path, eagle: Path, form: tuple[int, int, int]) -> None:
    """Steps, branches and drafts: a level alone, fewer drafts than steps, more branches than a level of the tree."""
    steps, topk, drafts = form
    prompts = random_prompts(3)
    plain = answers(started(*EAGER, folder=shallow), prompts, 16, ignore_eos=True)
    tree = {"speculative_steps": steps, "speculative_topk": topk, "speculative_draft_tokens": drafts}
    runner = started(*EAGER, folder=shallow, **drafted_by(eagle, **tree))
    assert texts(answers(runner, prompts, 16, ignore_eos=True)) == texts(plain)
    assert counted(runner)[1] > 0


def branches(
    following: Callable[[list[int]], torch.Tensor], steps: int, topk: int, drafts: int
) -> set[tuple[int, ...]]:
    """The branches of a tree by EAGLE-2 (Li et al. 2024): `following` gives log-probabilities behind a branch."""
    scores: dict[tuple[int, ...], float] = {(): 0.0}
    level: list[tuple[int, ...]] = [()]
    for _ in range(steps):
        found = {}
        for branch in level:
            best = following(list(branch)).topk(topk)
            for token, gained in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                found[*branch, token] = scores[branch] + gained
        scores |= found
        level = sorted(found, key=lambda branch: -found[branch])[:topk]
    del scores[()]
    return set(sorted(scores, key=lambda branch: -scores[branch])[:drafts])


def branches_of(packed: list[list[int]]) -> set[tuple[int, ...]]:
    """Those that a packed tree has."""
    tokens, parents, depths, _ = packed
    branch: list[tuple[int, ...]] = [()]
    for node in range(1, len(tokens)):
        branch.append((*branch[parents[node]], tokens[node]))
        assert len(branch[node]) == depths[node]
    return set(branch[1:])


@torch.no_grad()
def test_trees_are_those_of_the_paper(started: Start, shallow: Path, eagle: Path) -> None:
    """Every branch as if it were alone behind the text, without a cache."""
    runner = started(*EAGER, folder=shallow, **drafted_by(eagle, **TREE))
    made = recorded_drafts(runner)
    (prompt,) = random_prompts(1, shortest=30)
    (answer,) = answers(runner, [prompt], 24, ignore_eos=True)
    text, (target, head) = [*prompt, *answer.tokens], reference(shallow, eagle)
    embedding, checked = target.get_input_embeddings(), 0
    for length, packed in made:
        if length + 8 >= len(text):  # behind the end nothing has room
            continue
        states = target.model(torch.tensor([text[:length]])).last_hidden_state

        def following(branch: list[int], length: int = length, states: torch.Tensor = states) -> torch.Tensor:
            tokens = torch.tensor([text[1:length] + branch])
            true = torch.cat((states[:, :-1], states.new_zeros(1, len(branch), states.shape[2])), 1)
            predicted = head.steps(embedding(tokens), true)[len(branch)][0, -1]
            return target.lm_head(predicted).log_softmax(-1)

        assert branches_of(packed) == branches(following, 3, 3, 7), length
        checked += 1
    assert checked > 4


def test_with_topk_1_drafts_are_chains_by_the_code_of_chains(started: Start, shallow: Path, eagle: Path) -> None:
    engine = started(*EAGER, folder=shallow, **drafted_by(eagle, speculative_topk=1)).engine
    head = engine.seats.head
    made = [type(one).__name__ for one in (engine.seats, engine.attention, head.steps, head.attention)]
    assert made == ["DraftingSeats", "TorchAttention", "HeadSteps", "TorchAttention"]


def test_an_eagle3_head_drafts_trees(started: Start, llama_folder: Path) -> None:
    folder = random_head(llama_folder, SpeculativeMethod.Eagle3)
    prompts = random_prompts(4)
    plain = answers(started(*EAGER), prompts, 12, ignore_eos=True)
    runner = started(*EAGER, **drafted_by(folder, SpeculativeMethod.Eagle3, **TREE))
    assert texts(answers(runner, prompts, 12, ignore_eos=True)) == texts(plain)
    assert counted(runner)[0] > 0
    head, known = runner.engine.seats.head, known_facts(runner)
    assert kept_states_bytes(runner.config, known) == dict(head.steps.tensors())["states"].nbytes


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"speculative_topk": 1, "speculative_draft_tokens": 5}, "draftTokens is for trees"),
        ({"speculative_topk": 16, "speculative_draft_tokens": 63}, "draftTokens is 63: set 1 to 62"),
        ({"speculative_topk": 80, "speculative_steps": 1}, "topk is 80: set 1 to 16"),
        ({"speculative_topk": 16, "speculative_steps": 6}, r"\(steps - 1\) x topk is 80"),
        ({"speculative_topk": 2, "speculative_draft_tokens": 11}, "3 steps of topk 2 draft 10"),
    ],
)
def test_a_tree_that_cannot_be_drafted_is_refused(
    started: Start, shallow: Path, eagle: Path, tree: dict[str, int], words: str
) -> None:
    with pytest.raises(StartFailure, match=words) as caught:
        started(*EAGER, folder=shallow, **drafted_by(eagle, **tree))
    assert caught.value.code is ExitCode.SettingInvalid


def test_more_branches_than_a_head_has_tokens_are_refused(started: Start, tmp_path: Path) -> None:
    """Where it has as many, each level has all of them."""
    folder = write_llama(tmp_path / "model", vocab_size=18)
    head = random_head(folder, SpeculativeMethod.Eagle3)

    def asked(topk: int) -> dict[str, Any]:
        return drafted_by(head, SpeculativeMethod.Eagle3, **TREE | {"speculative_topk": topk})

    with pytest.raises(StartFailure, match=r"topk: 10 branches at each step, and the draft head knows 9 tokens") as one:
        started(*EAGER, folder=folder, **asked(10))
    assert one.value.code is ExitCode.SettingInvalid
    prompts = [[3, 4, 5], [7]]
    plain = answers(started(*EAGER, folder=folder), prompts, 12, ignore_eos=True)
    assert texts(answers(started(*EAGER, folder=folder, **asked(9)), prompts, 12, ignore_eos=True)) == texts(plain)


def test_a_script_of_chains_is_refused(
    started: Start, shallow: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_ACCEPTANCE", "0.5")
    with pytest.raises(StartFailure, match=r"spec\.engine\.speculative\.topk: 1") as caught:
        started(*EAGER, folder=shallow, **drafted_by(eagle, **TREE))
    assert caught.value.code is ExitCode.SettingInvalid

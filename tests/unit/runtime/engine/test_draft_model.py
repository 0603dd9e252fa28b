"""A draft model changes no text; what it has not read it reads before it drafts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphpod_policy import ExitCode, KvCacheDtype, OnCaptureFailure, Policy, SpeculativeMethod
from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.cache.host_tier import LoadCosts
from graphpod_runtime.engine.forward.drafting.draft_model import DraftModel
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.drafting import PlainReason
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.start.drafting.draft_model import DraftStart
from tests.unit.runtime.conftest import random_prompts, write_llama
from tests.unit.runtime.engine.test_speculation import POLICIES, SAMPLINGS, Served, texts, waves

Start = Callable[..., Runner]


def drafted_by(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of an engine for which the model in `folder` drafts."""
    given = {"speculative_draft": str(folder), "speculative_max_batch": 8}
    return {"speculative": SpeculativeMethod.DraftModel} | given | more


def counted(runner: Runner) -> tuple[float, float]:
    """Drafts that were verified, and those of them that were right."""
    proposed, accepted = (f"graphpod_speculation_{kind}_tokens_total" for kind in ("proposed", "accepted"))
    return tuple(runner.counters.value(name, method="DraftModel") for name in (proposed, accepted))


def of_drafts(runner: Runner, name: str, **labels: str) -> float:
    """A count of the graphs of the draft steps."""
    return runner.counters.value(f"graphpod_graph_{name}_total", phase="draft", **labels)


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same vocabulary, of other heads and layers: it is right now and then."""
    folder = tmp_path_factory.mktemp("smaller")
    return write_llama(folder, heads=4, kv_heads=2, num_hidden_layers=2, seed=5)


@pytest.fixture(scope="module")
def near(llama_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with noise on every weight: it is right more often than not."""
    folder = tmp_path_factory.mktemp("near")
    shutil.copytree(llama_folder, folder, dirs_exist_ok=True)
    generator, path = torch.Generator().manual_seed(3), folder / "model.safetensors"
    weights = load_file(path)
    noisy = {
        name: one + 0.04 * one.std() * torch.randn(one.shape, generator=generator) for name, one in weights.items()
    }
    save_file(noisy, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize("policies", POLICIES[:2])
def test_the_model_itself_is_right_as_a_draft(
    undrafted: Start, started: Start, llama_folder: Path, policies: tuple[Policy, Policy]
) -> None:
    prompts = random_prompts(8)
    plain = answers(undrafted(*policies), prompts, 40, ignore_eos=True)
    runner = started(*policies, **drafted_by(llama_folder))
    assert texts(answers(runner, prompts, 40, ignore_eos=True)) == texts(plain)
    proposed, accepted = counted(runner)
    assert accepted >= 0.99 * proposed > 0
    graphs = policies[1] is not Policy.Disabled
    assert of_drafts(runner, "captures", result="ok") == (8 if graphs else 0), "four sizes, twice"
    assert of_drafts(runner, "selfchecks", result="passed") == (4 if graphs else 0)
    passes = runner.counters.value("graphpod_speculation_passes_total", method="DraftModel")
    assert of_drafts(runner, "replays" if graphs else "fallbacks") >= passes > 0
    assert of_drafts(runner, "fallbacks" if graphs else "replays") == 0
    assert runner.pages.available == runner.pages.capacity


@pytest.mark.parametrize("kind", ["drawn", "processed"])
def test_texts_are_those_without_drafts(undrafted: Start, started: Start, near: Path, kind: str) -> None:
    prompts = random_prompts(8)
    asked = {"max_tokens": 30, "sampling": SAMPLINGS[kind], "ignore_eos": True}
    plain = answers(undrafted(), prompts, **asked)
    runner = started(**drafted_by(near))
    assert texts(answers(runner, prompts, **asked)) == texts(plain)
    proposed, accepted = counted(runner)
    assert 0 < accepted < proposed


@pytest.mark.parametrize(("kind", "kv_cache_bytes"), [("drawn", 8 << 20), ("greedy", 700 << 10)])
def test_prefix_hits_chunk_tails_and_preemptions(
    started: Start, llama_folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kv_cache_bytes: int
) -> None:
    """The draft is the model itself: whatever keys and values it lacks are seen as drafts that are wrong."""
    plain = Served(started())
    waves(plain, SAMPLINGS[kind], ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison,seats,addresses")
    runner = started(kv_cache_bytes=kv_cache_bytes, **drafted_by(llama_folder))
    drafted = Served(runner)
    waves(drafted, SAMPLINGS[kind], ignore_eos=True)
    assert drafted.got == plain.got
    assert drafted.scheduler.kv.hit_tokens > 0
    assert (drafted.scheduler.preemptions > 0) is (kv_cache_bytes < 1 << 20)
    assert drafted.scheduler.kv.available == runner.pages.capacity
    proposed, accepted = counted(runner)
    if kind == "greedy":
        assert accepted >= 0.99 * proposed > 0


def test_what_was_decoded_without_drafts_is_read_before_the_next_draft(
    undrafted: Start, started: Start, llama_folder: Path
) -> None:
    """Six requests decode plainly because they are too many; then two of them go on with drafts, and their texts are
    prefixes of more requests."""
    prompts = random_prompts(6, shortest=9, longest=30)
    plain = answers(undrafted(), prompts, 40, ignore_eos=True)
    runner = started(**drafted_by(llama_folder, speculative_max_batch=2), decode_sizes=(1, 2, 4, 8))
    served = Served(runner)
    for index, prompt in enumerate(prompts):
        served.submit(str(index), prompt, 40 if index < 2 else 20, ignore_eos=True)
    served.drain()
    for index, answer in enumerate(plain):
        assert served.got[str(index)] == list(answer.tokens)[: 40 if index < 2 else 20]
    proposed, accepted = counted(runner)
    assert accepted == proposed > 20
    for index in range(2, 6):
        served.submit(f"again {index}", [*prompts[index], *plain[index].tokens[:18]], 12, ignore_eos=True)
        served.drain()
    assert served.scheduler.kv.hit_tokens > 100
    more, right = counted(runner)
    assert right - accepted == more - proposed > 20


def test_what_it_has_not_read_is_read_in_bounded_parts_and_until_then_decoded_plainly(
    undrafted: Start, started: Start, llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(4, shortest=25, longest=30)
    plain = answers(undrafted(), prompts, 40, ignore_eos=True)
    runner = started(**drafted_by(llama_folder, speculative_max_batch=2), decode_sizes=(1, 2, 4, 8))
    served, draft = Served(runner), runner.engine.seats.draft_model  # type: ignore[union-attr]
    drafting = served.scheduler.drafting
    assert draft is not None
    assert drafting is not None
    for index, prompt in enumerate(prompts):
        served.submit(str(index), prompt, 40, ignore_eos=True)
    served.drain()
    assert drafting.plain[PlainReason.Batch] > 100, "they were too many for drafts"
    drafting.budget = draft.budget = 5
    drafting.plain.clear()
    reads, read = list[int](), draft.read
    monkeypatch.setattr(DraftModel, "read", lambda self, inputs: (reads.append(inputs.count), read(inputs)))
    text = [*prompts[0], *plain[0].tokens[:38]]
    served.submit("again", text, 30, ignore_eos=True)
    served.drain()
    cached = served.scheduler.kv.hit_tokens
    assert cached >= 60
    assert served.got["again"][:2] == list(plain[0].tokens[38:])
    assert max(reads) == 5
    assert sum(reads) >= len(text) - 30, "the prompt itself was read when it was computed"
    assert len(reads) - 2 <= drafting.plain[PlainReason.Behind] <= len(reads), "a pass for each part"
    assert drafting.plain[PlainReason.Batch] == 0
    proposed, accepted = counted(runner)
    assert accepted == proposed > 10


def test_what_came_back_from_the_host_is_not_read(started: Start, llama_folder: Path) -> None:
    """A loaded page has none of the draft model's keys and values: it reads the text again, and is right then."""
    runner = started(host_cache_bytes=4 << 20, **drafted_by(llama_folder))
    tier, draft = runner.host_tier, runner.engine.seats.draft_model  # type: ignore[union-attr]
    assert tier is not None
    assert draft is not None
    tier.costs = LoadCosts(0.0, 0.0, 1.0)
    taken = runner.pages.take(runner.pages.available - 40)
    plain, drafted = Served(started()), Served(runner)
    drafted.scheduler = Scheduler(runner.pages, drafted.scheduler.limits, runner.eos_ids, tier)
    drafted.run_ahead = RunAhead(drafted.scheduler, runner)
    prompts = random_prompts(3, shortest=60, longest=70)
    for served in (plain, drafted):
        for number in range(2):
            for index, prompt in enumerate(prompts):
                served.submit(f"{number}.{index}", [*prompt, number], 20, ignore_eos=True)
                served.drain()
    assert drafted.got == plain.got
    assert tier.loaded > 20
    proposed, accepted = counted(runner)
    assert accepted >= 0.99 * proposed > 0
    runner.pages.free(taken)


def test_memory_of_both_models_is_counted(started: Start, llama_folder: Path, smaller: Path) -> None:
    plain, drafted = started(), started(**drafted_by(smaller))
    assert drafted.report.weights_bytes > plain.report.weights_bytes
    own, draft = (runner.engine.attention.cache for runner in (plain, drafted))
    model = drafted.engine.seats.draft_model  # type: ignore[union-attr]
    assert model is not None
    under = model.attention.cache
    assert under.pages == draft.pages < own.pages
    given = 8 << 20
    used = sum(half.nbytes for cache in (draft, under) for half in (cache.keys, cache.values))
    assert used == drafted.report.kv_bytes
    assert 0 <= given + used // draft.pages - used < used // draft.pages


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"vocab_size": 97}, ExitCode.ModelUnsupported, "a vocabulary of 97 tokens, and tiny one of 211"),
        ({"max_position_embeddings": 64}, ExitCode.ContextTooLong, "64 positions, and requests may have 128 tokens"),
    ],
)
def test_another_models_draft_is_refused(
    started: Start, tmp_path: Path, settings: dict[str, int], code: ExitCode, words: str
) -> None:
    with pytest.raises(StartFailure, match=words) as caught:
        started(**drafted_by(write_llama(tmp_path, **settings)))
    assert caught.value.code is code
    assert "spec.engine.speculative.draftModel" in str(caught.value)


def test_an_unknown_folder_and_a_missing_one_are_refused(started: Start, tmp_path: Path) -> None:
    with pytest.raises(StartFailure, match=r"speculative\.draftModel: .*no such folder") as caught:
        started(**drafted_by(tmp_path / "nowhere"))
    assert caught.value.code is ExitCode.ModelInvalid
    with pytest.raises(StartFailure, match="method DraftModel has no draftModel") as caught:
        started(**drafted_by(tmp_path) | {"speculative_draft": None})
    assert caught.value.code is ExitCode.ConfigInvalid


def test_an_fp8_cache_is_one_of_both(started: Start, llama_folder: Path) -> None:
    runner = started(**drafted_by(llama_folder, kv_cache_dtype=KvCacheDtype.Fp8))
    answers(runner, random_prompts(4), 20, Sampling(), ignore_eos=True)
    proposed, accepted = counted(runner)
    assert accepted >= 0.9 * proposed > 0
    assert runner.engine.seats.draft_model.attention.cache.keys.dtype is torch.float8_e4m3fn  # type: ignore[union-attr]


def no_capture(patch: pytest.MonkeyPatch) -> None:
    def captured(self: DraftStart, size: int, pool: object) -> None:
        raise CaptureFailed("no")

    patch.setattr(DraftStart, "_captured", captured)


def no_run_before(patch: pytest.MonkeyPatch) -> None:
    """Of drafts alone: on a CPU no pool runs anything before a capture."""

    def run(self: DraftStart, size: int) -> None:
        raise RuntimeError("no")

    def warm(self: DraftStart, size: int, pool: object) -> None:
        real(self, size, SimpleNamespace(warm=lambda code: code()))  # type: ignore[arg-type]

    real = DraftStart._warm
    patch.setattr(DraftStart, "_run", run)
    patch.setattr(DraftStart, "_warm", warm)


@pytest.mark.parametrize("failing", [no_capture, no_run_before])
def test_graphs_of_drafts_that_fail_are_reported_and_drafts_go_on(
    undrafted: Start,
    started: Start,
    llama_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: Callable[[pytest.MonkeyPatch], None],
) -> None:
    prompts = random_prompts(3)
    plain = texts(answers(undrafted(), prompts, 12, ignore_eos=True))
    failing(monkeypatch)
    runner = started(**drafted_by(llama_folder), on_capture_failure=OnCaptureFailure.Degrade)
    (warning,) = runner.report.warnings
    assert warning.startswith("drafts are computed without graphs: ")
    assert "no" in warning.split(": ")[-1]
    assert of_drafts(runner, "capture_failures", reason="CaptureFailed") == 1
    assert texts(answers(runner, prompts, 12, ignore_eos=True)) == plain
    assert of_drafts(runner, "fallbacks", reason="NotCaptured") > 0
    with pytest.raises(StartFailure, match="onCaptureFailure: Degrade to draft without graphs"):
        started(**drafted_by(llama_folder))


def test_batches_above_the_largest_graph_draft_without_one(started: Start, llama_folder: Path) -> None:
    runner = started(**drafted_by(llama_folder), decode_sizes=(1, 2))
    answers(runner, random_prompts(5), 12, ignore_eos=True)
    assert of_drafts(runner, "fallbacks", reason="SizeAboveLadder") > 0
    assert of_drafts(runner, "fallbacks", reason="Disabled") == 0


def test_a_vocabulary_of_the_same_size_and_other_tokens_is_refused(
    started: Start, llama_folder: Path, tmp_path: Path
) -> None:
    def with_tokens(name: str, *texts: str) -> Path:
        shutil.copytree(llama_folder, tmp_path / name)
        made = {"model": {"vocab": {text: id for id, text in enumerate(texts)}}}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(made))
        return tmp_path / name

    target, draft = with_tokens("large", "a", "b"), with_tokens("small", "b", "a")
    with pytest.raises(StartFailure, match="draftModel: token 0 is 'b' in the vocabulary of small") as caught:
        started(folder=target, **drafted_by(draft))
    assert caught.value.code is ExitCode.ModelUnsupported


@pytest.mark.parametrize(
    ("fault", "graphs", "which", "rule"),
    [
        ("capture:draft:4", 0, "", "CaptureFailed"),
        ("selfcheck:draft:2", 0, "", "SelfCheckFailed"),
        ("capture-oom:draft:4", 2, "of more than 2 requests ", "CaptureOutOfMemory"),
        ("capture-oom:draft:4,capture-oom:draft:2,capture-oom:draft:1", 0, "", "CaptureOutOfMemory"),
    ],
)
def test_a_fault_in_the_graphs_of_drafts_costs_graphs_and_no_answer(
    undrafted: Start,
    started: Start,
    llama_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    graphs: int,
    which: str,
    rule: str,
) -> None:
    """Graphs of 8, 4, 2 and 1 requests; where memory runs out the smaller half is captured."""
    prompts = random_prompts(5)
    plain = texts(answers(undrafted(), prompts, 8, ignore_eos=True))
    monkeypatch.setenv("GRAPHPOD_FAULT", fault)
    runner = started(**drafted_by(llama_folder), on_capture_failure=OnCaptureFailure.Degrade)
    (warning,) = runner.report.warnings
    assert warning.startswith(f"drafts {which}are computed without graphs: ")
    assert runner.report.drafts is not None
    assert runner.report.drafts.graphs == graphs
    assert of_drafts(runner, "capture_failures", reason=rule) >= 1
    assert texts(answers(runner, prompts, 8, ignore_eos=True)) == plain
    assert of_drafts(runner, "fallbacks", reason="SizeAboveLadder" if graphs else "NotCaptured") > 0

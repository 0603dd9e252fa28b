"""Prefill graphs hold the model's body, which models expose as a typed part: embedding, last norm and head stay
outside. Decode's graphs hold the whole step from embedding to greedy token; other samplers run after it. All sizes of a
phase write one set of output buffers.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.forward.sampling.sampler import SamplingBatch
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model
from tests.contracts.passes import inputs_for, replayed, with_a_past
from tests.contracts.pools import is_capturing
from tests.unit.runtime.conftest import random_prompts

ENDS = ("embed", "head")


class Watched:
    """Loads a model whose parts note whether they were called inside a capture, and in which gradient mode."""

    def __init__(self) -> None:
        self.captured: list[str] = []
        self.modes: set[tuple[bool, bool]] = set()

    def load(self, *arguments: Any) -> Model:
        model = load_model(*arguments)
        for name in ENDS:
            setattr(model, name, self._noting(name, getattr(model, name)))
        model.body.register_forward_pre_hook(lambda *_: self._note("body"))
        return model

    def _noting(self, name: str, right: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._note(name)
            return right(*arguments)

        return call

    def _note(self, name: str) -> None:
        self.modes.add((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        if is_capturing():
            self.captured.append(name)


def test_a_prefill_capture_calls_the_body_alone(started: Callable[..., Runner]) -> None:
    watched = Watched()
    started(Policy.Breakable, Policy.Disabled, load=watched.load)
    assert watched.captured == ["body"] * 4


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_a_decode_capture_calls_embedding_body_and_head(started: Callable[..., Runner], decode: Policy) -> None:
    watched = Watched()
    started(Policy.Disabled, decode, load=watched.load)
    assert watched.captured == ["embed", "body", "head"] * 4 * 2  # to measure, and at the cache's final address


def test_model_code_runs_without_gradients_and_never_in_inference_mode(started: Callable[..., Runner]) -> None:
    """Under inference mode ops arrive whole and views are misjudged: tokens would be silently wrong."""
    watched = Watched()
    runner = started(decode_sizes=(1, 2), load=watched.load)
    generate(runner, random_prompts(5), 4, ignore_eos=True)
    assert runner.counters.value("graphpod_eager_passes_total") > 0
    assert watched.modes == {(False, False)}


def test_a_decode_replay_calls_none_of_the_models_code_and_a_prefill_replay_only_its_ends(
    started: Callable[..., Runner],
) -> None:
    runner = started()
    prompts = random_prompts(3)
    expected = generate(runner, prompts, 6, ignore_eos=True)
    model, called = runner._engine.model, []
    for name in ENDS:
        right = getattr(model, name)
        setattr(model, name, lambda *call, name=name, right=right: (called.append(name), right(*call))[1])
    handle = model.body.register_forward_pre_hook(lambda *_: called.append("body"))
    assert generate(runner, prompts, 6, ignore_eos=True) == expected
    handle.remove()
    passes = runner.counters.value("graphpod_forward_passes_total", phase="prefill") / 2
    assert called.count("embed") == passes
    assert "body" not in called
    assert len(called) <= 2 * passes


def test_the_step_chooses_the_greedy_token_itself(started: Callable[..., Runner]) -> None:
    runner = with_a_past(started(Policy.Disabled, Policy.Full))
    logits, chosen = replayed(runner, inputs_for(runner, Phase.Decode, 7, seed=1), 8)
    assert torch.equal(chosen, logits.argmax(-1))


def test_other_samplers_draw_from_the_steps_logits(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    tokens = SamplingBatch.tokens

    def noting(self: SamplingBatch, logits: Tensor, chosen: Tensor, *more: Any) -> Tensor:
        result = tokens(self, logits, chosen, *more)
        drawn.extend(result.tolist())
        return result

    runner = started()
    # A start draws, too: it rehearses every way to.
    monkeypatch.setattr(SamplingBatch, "tokens", noting)
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=3)
    (answer,) = generate(runner, [[5, 6, 7]], 8, sampling, ignore_eos=True)
    assert answer == drawn
    assert runner.counters.value("graphpod_graph_replays_total", phase="decode") == 7
    assert answer == generate(started(Policy.Disabled, Policy.Disabled), [[5, 6, 7]], 8, sampling, ignore_eos=True)[0]


def test_all_sizes_of_a_phase_write_the_same_output_buffers(started: Callable[..., Runner]) -> None:
    runner = with_a_past(started())
    for phase, graphs in runner._engine.graphs.items():
        addresses = {
            tuple(result.data_ptr() for result in graphs.replay(inputs_for(runner, phase, size, seed=1), size))
            for size in graphs.sizes
        }
        assert len(addresses) == 1


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_a_body_may_return_more_than_hidden_states_into_one_tree_of_buffers(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, decode: Policy
) -> None:
    """Auxiliary hidden states, as a draft model wants them: checked as the main result is, written at every replay."""
    prompts = random_prompts(3)
    expected = generate(started(Policy.Breakable, decode), prompts, 4, ignore_eos=True)
    right = DecoderBody.forward

    def with_more(self: DecoderBody, hidden: Tensor, positions: Tensor, attend: Any) -> Any:
        result = right(self, hidden, positions, attend)
        return result, {"first": hidden * 2, "pair": (result[:, :3], positions)}

    monkeypatch.setattr(DecoderBody, "forward", with_more)
    runner = started(Policy.Breakable, decode)
    assert generate(runner, prompts, 4, ignore_eos=True) == expected
    inputs = inputs_for(runner, Phase.Prefill, 13, seed=1)
    hidden, more = runner._engine.graphs[Phase.Prefill].replay(inputs, 16)
    assert torch.equal(more["first"], runner._engine.model.embed(inputs.tokens) * 2)
    assert torch.equal(more["pair"][0], hidden[:, :3])
    assert torch.equal(more["pair"][1], inputs.positions)
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0

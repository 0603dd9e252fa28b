"""The engine in its caller's thread."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from graphpod_policy import ExitCode, Policy
from graphpod_runtime import Engine, EngineClosed, EngineFailed, RequestRefused, SamplingOptions
from graphpod_runtime.api.results import Generated
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.schedule.batch import Batch
from graphpod_runtime.wire.messages import FinishReason
from tests.unit.runtime.front.test_real_engine import greedy, serve

from .conftest import PROMPTS, captured, eager

GREEDY = SamplingOptions(temperature=0, max_tokens=20)


@pytest.fixture(scope="module")
def engine(llama: tuple[Path, LlamaForCausalLM]) -> Iterator[Engine]:
    with Engine(config=captured(llama[0])) as engine:
        yield engine


def unused(engine: Engine) -> bool:
    """Whether no request holds a page: those that keep prefixes can be taken."""
    scheduler = engine._requests._loop.scheduler
    return not scheduler.busy and scheduler.kv.available == scheduler.kv.capacity


def test_the_package_is_imported_without_torch() -> None:
    program = "import graphpod_runtime, sys; assert 'torch' not in sys.modules; print(graphpod_runtime.SamplingOptions)"
    program += "; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "SamplingOptions" in done.stdout


def test_the_texts_are_those_of_transformers_and_of_the_server(
    engine: Engine, llama: tuple[Path, LlamaForCausalLM], tmp_path: Path
) -> None:
    found = engine.generate(PROMPTS, GREEDY)
    assert [answer.text for answer in found] == [greedy(llama[1], prompt, 20) for prompt in PROMPTS]
    seeded = SamplingOptions(temperature=1, seed=7, max_tokens=12, stop=["\n"], logprobs=2)
    here = engine.generate(PROMPTS[0], seeded)
    front = serve(llama[0], tmp_path)
    try:
        front.eventually("ready", lambda: "ready: tiny" in front.log.read_text())
        reply = front.client().completions.create(
            model="tiny", prompt=PROMPTS[0], temperature=1, seed=7, max_tokens=12, stop=["\n"], logprobs=2
        )
    finally:
        front.process.terminate()
        front.ended()
    assert reply.choices[0].text == here.text
    assert reply.choices[0].finish_reason == here.finish_reason
    assert reply.choices[0].logprobs is not None
    assert here.logprobs is not None
    assert reply.choices[0].logprobs.token_logprobs == pytest.approx([one.logprob for one in here.logprobs], abs=1e-4)


def test_an_answer_says_what_it_took(engine: Engine) -> None:
    one = engine.generate([5, 6, 7], SamplingOptions(temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=1))
    assert one.prompt_token_ids == (5, 6, 7)
    assert len(one.token_ids) == one.usage.completion_tokens == 3
    assert (one.finish_reason, one.usage.prompt_tokens, one.logprobs) == (FinishReason.Length, 3, None)
    assert one.prompt_logprobs is not None
    assert [scored.token for scored in one.prompt_logprobs] == [6, 7]
    long = "one two three four five"
    first, again = engine.generate(long, GREEDY), engine.generate(long, GREEDY)
    assert (first.text, again.text) == (again.text, first.text)
    assert again.usage.cached_tokens > 0
    assert engine.detokenize(engine.tokenize(long)) == long


def test_pieces_joined_are_the_whole(engine: Engine) -> None:
    whole = engine.generate(PROMPTS, GREEDY)
    chunks = list(engine.generate(PROMPTS, GREEDY, stream=True))
    for index, answer in enumerate(whole):
        own = [chunk for chunk in chunks if chunk.index == index]
        assert "".join(chunk.text for chunk in own) == answer.text
        assert tuple(id for chunk in own for id in chunk.token_ids) == answer.token_ids
        assert [chunk.finish_reason for chunk in own] == [None] * (len(own) - 1) + [answer.finish_reason]
        assert own[-1].usage is not None
    assert len(chunks) > len(whole)


def test_chat_writes_the_model_s_template(engine: Engine) -> None:
    turn = {"role": "user", "content": "hello"}
    template = engine._service.tokenizer.encode_chat([turn])
    assert engine.chat([turn], GREEDY).token_ids == engine.generate(template, GREEDY).token_ids
    assert [one.prompt_token_ids for one in engine.chat([[turn], [turn]], GREEDY)] == [tuple(template)] * 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda engine: engine.generate("a" * 1000), "maximum context length is 128"),
        (lambda engine: engine.generate([5, 999]), "token id 999 at position 1"),
        (lambda engine: engine.generate(["fine", ""]), "prompts is empty"),
        (lambda engine: engine.generate([]), "give a text"),
        (lambda engine: engine.generate(5), "give a text"),
        (lambda engine: engine.generate([[5, "a"]]), "a list of token ids"),
        (lambda engine: engine.generate([[5, True]]), "a list of token ids"),
        (lambda engine: engine.generate("a", SamplingOptions(max_tokens=500)), "ask for at most 127 tokens"),
        (lambda engine: engine.chat([{"role": "king", "content": "a"}]), "messages.0.role"),
        (lambda engine: engine.chat([{"role": "user", "content": "a", "mood": 1}]), "mood is no field of a message"),
        (lambda engine: engine.chat("hello"), "give a list of messages"),
        (lambda engine: engine.chat([{"role": "user", "content": "a"}], variables={"x": 1}), "does not read 'x'"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(engine: Engine, call: object, words: str) -> None:
    before = engine.metrics().value("graphpod_forward_passes_total")
    with pytest.raises(RequestRefused) as caught:
        call(engine)  # type: ignore[operator]
    assert words in str(caught.value)
    assert engine.metrics().value("graphpod_forward_passes_total") == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperatur": 1}, "temperatur"),
        ({"stream": True}, "stream is a field of HTTP requests"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"top_p": float("nan")}, "top_p"),
    ],
)
def test_options_are_those_of_http_and_bounded(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SamplingOptions.model_validate(fields)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_batch": 0}, "max_batch: 0 is not a whole number, 1 or more"),
        ({"max_batch": 1.5}, "max_batch: 1.5 is not"),
        ({"tensor_parallel": True}, "tensor_parallel: True is not"),
        ({"host_cache": "1Gi"}, "host_cache: '1Gi' is not"),
        ({"prefill_sizes": (8, 0)}, "prefill_sizes: 0 is not a whole number, 1 or more"),
        ({"decode_sizes": (2.0,)}, "decode_sizes: 2.0 is not"),
        ({"decode_sizes": ()}, "decode_sizes: must have 1 to 128 sizes, has 0; None is the default ladder"),
        ({"decode_sizes": range(1, 1000)}, "decode_sizes: must have 1 to 128 sizes, has 999"),
        ({"device": "gpu"}, "device: 'gpu' is not one of auto, cpu, cuda"),
        ({"dtype": "fp16"}, "dtype: 'fp16' is not one of auto, float32"),
        ({"prefill": "full"}, "prefill: 'full' is not one of Auto, Piecewise, Breakable, Full, Disabled"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype: 'fp8' is not one of Auto, Fp8"),
        ({"speculative": "ngram"}, "speculative: 'ngram' is not one of Ngram"),
    ],
)
def test_settings_are_bounded_before_anything_starts(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Engine(tmp_path, **settings)


def test_an_iterator_that_is_closed_gives_its_pages_back(engine: Engine) -> None:
    stream = engine.generate(PROMPTS, SamplingOptions(max_tokens=60, ignore_eos=True), stream=True)
    next(stream)
    assert not unused(engine)
    stream.close()
    assert unused(engine)
    # A second one runs while the first one waits for its caller.
    slow = engine.generate(PROMPTS[0], GREEDY, stream=True)
    first = next(slow)
    whole = engine.generate(PROMPTS[0], GREEDY)
    assert "".join([first.text, *(chunk.text for chunk in slow)]) == whole.text
    assert unused(engine)


def test_threads_share_an_engine(engine: Engine) -> None:
    expected = [answer.text for answer in engine.generate(PROMPTS, GREEDY)]
    found: dict[int, str] = {}

    def ask(index: int) -> None:
        found[index] = engine.generate(PROMPTS[index % 4], GREEDY).text

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[index] for index in range(8)] == expected * 2
    assert unused(engine)


def test_two_engines_take_turns(engine: Engine, llama: tuple[Path, LlamaForCausalLM]) -> None:
    alone = engine.generate(PROMPTS, GREEDY)
    with Engine(config=eager(llama[0])) as other:
        streams = [one.generate(PROMPTS, GREEDY, stream=True) for one in (engine, other)]
        texts = [[""] * len(PROMPTS), [""] * len(PROMPTS)]
        while streams:
            for at, stream in enumerate(list(streams)):
                if (chunk := next(stream, None)) is None:
                    streams = []
                else:
                    texts[at][chunk.index] += chunk.text
        assert [answer.text for answer in other.generate(PROMPTS, GREEDY)] == [answer.text for answer in alone]
    for own, answer in zip(zip(*texts, strict=True), alone, strict=True):
        assert all(answer.text.startswith(text) and text for text in own)


def test_a_pass_that_fails_reaches_the_caller_and_ends_the_engine(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(config=eager(llama[0]))
    stream = engine.generate(PROMPTS[0], GREEDY, stream=True)
    next(stream)

    def broken(batch: Batch) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(engine.runner, "launch", broken)
    with pytest.raises(EngineFailed, match=r"illegal memory access.*make a new Engine"):
        engine.generate(PROMPTS, GREEDY)
    monkeypatch.undo()
    with pytest.raises(EngineFailed, match="illegal memory access"):
        list(stream)
    with pytest.raises(EngineFailed, match="illegal memory access"):
        engine.generate("a", GREEDY)
    engine.close()


def test_an_interrupt_within_a_pass_ends_the_engine(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(config=eager(llama[0])) as engine:

        def interrupted(batch: Batch) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(engine.runner, "launch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate("a", GREEDY)
        with pytest.raises(EngineFailed, match="KeyboardInterrupt"):
            engine.generate("a", GREEDY)


def test_logits_that_are_not_finite_end_their_request_alone(llama: tuple[Path, LlamaForCausalLM]) -> None:
    with Engine(config=eager(llama[0])) as engine:
        with torch.no_grad():
            _embedding(engine)[200] = float("nan")
        with pytest.raises(EngineFailed, match="no finite logits"):
            engine.generate([5, 200, 7], GREEDY)
        assert engine.generate([5, 6, 7], SamplingOptions(temperature=0, max_tokens=1)).token_ids != (200,)
        assert unused(engine)


def test_one_prompt_that_fails_ends_no_other_and_its_error_has_their_answers(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphpod_runtime.api.engine.AT_ONCE", 3)
    good, bad = [[5, 6, 7], [8, 9], [10, 11, 12, 13]], [5, 200, 7]
    with Engine(config=eager(llama[0])) as engine:
        alone = [engine.generate(prompt, GREEDY) for prompt in good]
        assert not any(200 in answer.token_ids for answer in alone)
        with torch.no_grad():
            _embedding(engine)[200] = float("nan")
        with pytest.raises(EngineFailed, match=r"prompt 1: .*no finite logits.* \(2 of 5 prompts failed\)") as caught:
            engine.generate([good[0], bad, good[1], good[2], bad], GREEDY)
        found = caught.value.answers
        assert [one.text for one in found if isinstance(one, Generated)] == [answer.text for answer in alone]
        assert [index for index, one in enumerate(found) if isinstance(one, EngineFailed)] == [1, 4]
        texts = [""] * 3

        def read() -> None:
            for chunk in engine.generate([bad, *good[:2]], GREEDY, stream=True):
                texts[chunk.index] += chunk.text

        with pytest.raises(EngineFailed, match=r"prompt 0: .*no finite logits.*for this model$"):
            read()
        assert texts == ["", alone[0].text, alone[1].text]
        assert unused(engine)


def test_prompts_whose_own_masks_leave_nothing_are_refused(engine: Engine) -> None:
    (end,) = engine.runner.eos_ids
    options = SamplingOptions(temperature=0, max_tokens=4, allowed_token_ids=[end], min_tokens=2)
    with pytest.raises(RequestRefused, match=r"prompt 0: .*\(2 of 2 prompts failed\)") as caught:
        engine.generate([[5, 6], [5, 7]], options)
    assert all(isinstance(one, RequestRefused) for one in caught.value.answers)
    assert unused(engine)


def _embedding(engine: Engine) -> torch.Tensor:
    shape = engine.runner.engine.model.shape
    return next(p for p in engine.runner.engine.model.parameters() if p.shape == (shape.vocab, shape.hidden))


def test_a_closed_engine_says_so_and_leaves_its_ranks(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr("graphpod_runtime.engine.ranks.start.let_others_leave", left.append)
    engine = Engine(config=eager(llama[0]))
    runner = engine.runner
    stream = engine.generate(PROMPTS[0], GREEDY, stream=True)
    next(stream)
    engine.close()
    engine.close()
    assert left == [runner], "whoever holds it"
    for call in (
        lambda: engine.generate("a"),
        lambda: engine.chat([{"role": "user", "content": "a"}]),
        lambda: engine.warmup,
        engine.metrics,
        engine.__enter__,
    ):
        with pytest.raises(EngineClosed, match="closed"):
            call()
    with pytest.raises(EngineFailed, match="closed"):
        list(stream)
    assert "closed" in repr(engine)


def test_a_start_that_fails_says_why_and_leaves_nothing(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("GRAPHPOD_FAULT", "capture:prefil:64")
        with pytest.raises(StartFailure) as caught:
            Engine(config=captured(llama[0]))
        assert caught.value.code is ExitCode.SettingInvalid
    with pytest.raises(StartFailure, match=r"ranks: tensor 5 does .*; set tensor_parallel to 1, which"):
        Engine(llama[0], tensor_parallel=5)
    with pytest.raises(ValueError, match="give either model"):
        Engine()
    with pytest.raises(ValueError, match="config sets all"):
        Engine(config=eager(llama[0]), max_batch=2)
    with Engine(llama[0], max_model_len=64, max_batch=2, prefill="Disabled", decode=Policy.Disabled) as engine:
        assert "prefill Disabled (Recorder) 0/0" in repr(engine)
        assert engine.warmup["limits"] == {"maxModelLen": 64, "maxBatch": 2, "auto": []}


def test_more_prompts_than_run_together_are_all_answered(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphpod_runtime.api.engine.AT_ONCE", 7)
    with Engine(config=eager(llama[0])) as engine:
        prompts = [[index % 200 + 3, 5] for index in range(20)]
        one = SamplingOptions(temperature=0, max_tokens=2)
        assert engine.generate(prompts, one) == [engine.generate(prompt, one) for prompt in prompts]
        assert engine.metrics().value("graphpod_requests_total") == 40
        assert unused(engine)


def test_vectors_are_those_of_transformers(engine: Engine, llama: tuple[Path, LlamaForCausalLM]) -> None:
    found = engine.embed(PROMPTS)
    for prompt, one in zip(PROMPTS, found, strict=True):
        ids = engine.tokenize(prompt)
        with torch.no_grad():
            state = llama[1].model(torch.tensor([ids])).last_hidden_state[0, -1]
        assert torch.allclose(torch.from_numpy(one.vector.copy()), state / state.norm(), atol=1e-5)
        assert one.prompt_tokens == len(ids)
    assert engine.embed(PROMPTS[0]).vector.tolist() == pytest.approx(found[0].vector.tolist(), abs=1e-5)
    with pytest.raises(RequestRefused, match="an embedding takes 1 to 127"):
        engine.embed([5] * 128)
    assert engine.metrics().value("graphpod_pooled_prompts_total", kind="embedding") == len(PROMPTS) + 1
    assert unused(engine)

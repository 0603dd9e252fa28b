"""The engine in a thread of its own."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from graphpod_policy import ExitCode
from graphpod_runtime import AsyncEngine, Engine, EngineClosed, EngineFailed, RequestRefused, SamplingOptions
from graphpod_runtime.api.own_thread import ThreadEngine
from graphpod_runtime.api.ownership import SecondEngine
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.schedule.batch import Batch
from tests.unit.runtime.front.test_real_engine import greedy

from .conftest import PROMPTS, captured, eager

GREEDY = SamplingOptions(temperature=0, max_tokens=20)
LONG = SamplingOptions(temperature=0, max_tokens=100, ignore_eos=True)


@pytest.fixture
async def engine(llama: tuple[Path, LlamaForCausalLM]) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(config=eager(llama[0])) as engine:
        yield engine


def requests_of(engine: AsyncEngine) -> ThreadEngine:
    assert engine._requests is not None
    return engine._requests


async def all_pages_are_back(engine: AsyncEngine) -> None:
    """A request that was aborted in flight gives its pages back a pass later."""
    loop = requests_of(engine).loop
    assert loop is not None
    async with asyncio.timeout(60):
        while loop.busy or loop.scheduler.kv.available != loop.scheduler.kv.capacity:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_answers_are_those_of_transformers(llama: tuple[Path, LlamaForCausalLM]) -> None:
    async with AsyncEngine(config=captured(llama[0])) as engine:
        found = await asyncio.gather(*(engine.generate(prompt, GREEDY) for prompt in PROMPTS))
        assert [answer.text for answer in found] == [greedy(llama[1], prompt, 20) for prompt in PROMPTS]
        assert engine.metrics().value("graphpod_eager_passes_total") == 0
        chunks = [chunk async for chunk in engine.generate(PROMPTS[0], GREEDY, stream=True)]
        assert "".join(chunk.text for chunk in chunks) == found[0].text
        assert chunks[-1].usage is not None
        turn = await engine.chat([{"role": "user", "content": "hello"}], GREEDY)
        assert turn.usage.prompt_tokens == 5
        assert engine.warmup["graph"]["decode"]["sizes"] == {"planned": 4, "captured": 4, "failed": 0}


async def test_fifty_at_once_some_of_them_cancelled_leave_no_page_behind(engine: AsyncEngine) -> None:
    prompts = [f"number {index}" for index in range(50)]
    tasks = [asyncio.create_task(engine.generate(prompt, LONG)) for prompt in prompts]
    stream = engine.generate("a stream", LONG, stream=True)
    await anext(stream)
    for task in tasks[::3]:
        task.cancel()
    await stream.aclose()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    for index, answer in enumerate(found):
        if index % 3 == 0:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            assert answer.usage.completion_tokens == 100  # type: ignore[union-attr]
    await all_pages_are_back(engine)
    assert requests_of(engine).open == 0
    assert engine.metrics().value("graphpod_requests_total", finish_reason="abort") > 0
    again = await engine.generate(prompts[1], LONG)
    assert again.text == found[1].text  # type: ignore[union-attr]


async def test_calls_beyond_what_waits_for_the_engine_wait_in_front_of_it(engine: AsyncEngine) -> None:
    engine._places = asyncio.Semaphore(4)
    tasks = [asyncio.create_task(engine.generate("a", LONG)) for _ in range(12)]
    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, requests_of(engine).open)
        await asyncio.sleep(0)
    assert most == 4


@pytest.mark.parametrize(("prompt", "words"), [("a" * 1000, "context length"), ([999], "token id 999"), ("", "empty")])
async def test_a_wrong_request_is_refused_and_frees_its_place(
    engine: AsyncEngine, prompt: str | list[int], words: str
) -> None:
    engine._places = asyncio.Semaphore(1)
    with pytest.raises(RequestRefused, match=words):
        await engine.generate(prompt)
    with pytest.raises(RequestRefused, match=words):
        await anext(engine.generate(prompt, stream=True))
    assert (await engine.generate("a", GREEDY)).text


async def test_an_engine_that_fails_ends_every_call(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [asyncio.create_task(engine.generate("a", LONG)) for _ in range(3)]
    await anext(engine.generate("b", LONG, stream=True))

    def broken(batch: Batch) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(engine._runner, "launch", broken)
    for call in calls:
        with pytest.raises(EngineFailed, match=r"illegal memory access.*make a new AsyncEngine"):
            await call
    with pytest.raises(EngineFailed, match="illegal memory access"):
        await engine.generate("a")
    await engine.close()
    requests_of(engine).thread.join(60)
    assert not requests_of(engine).thread.is_alive()


async def test_an_engine_is_used_between_start_and_close(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr("graphpod_runtime.engine.ranks.start.let_others_leave", left.append)
    engine = AsyncEngine(config=eager(llama[0]))
    with pytest.raises(EngineClosed, match="not started"):
        await engine.generate("a")
    async with engine:
        call = asyncio.create_task(engine.generate("a", LONG))
        await anext(engine.generate("b", LONG, stream=True))
        with pytest.raises(EngineClosed, match="started already"):
            await engine.start()
        runner = engine._runner
        await engine.close()
        with pytest.raises(EngineFailed, match="closed"):
            await call
        with pytest.raises(EngineClosed, match="closed"):
            await engine.generate("a")
        with pytest.raises(EngineClosed, match="closed"):
            engine.metrics()
    requests_of(engine).thread.join(60)
    assert not requests_of(engine).thread.is_alive()
    assert left == [runner], "its ranks, whoever holds it"


async def test_it_is_the_only_engine_of_its_process(llama: tuple[Path, LlamaForCausalLM]) -> None:
    async with AsyncEngine(config=eager(llama[0])):
        with pytest.raises(SecondEngine, match="an AsyncEngine is open"):
            Engine(config=eager(llama[0]))
        with pytest.raises(SecondEngine, match="an AsyncEngine is open"):
            await AsyncEngine(config=eager(llama[0])).start()
    with Engine(config=eager(llama[0])), pytest.raises(SecondEngine, match="close them first"):
        await AsyncEngine(config=eager(llama[0])).start()


async def test_a_start_that_fails_or_is_cancelled_leaves_no_thread(
    llama: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("GRAPHPOD_FAULT", "capture:prefil:64")
        with pytest.raises(StartFailure) as caught:
            await AsyncEngine(config=captured(llama[0])).start()
        assert caught.value.code is ExitCode.SettingInvalid
    engine = AsyncEngine(config=eager(llama[0]))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await engine.start()
    await asyncio.to_thread(requests_of(engine).thread.join, 60)
    assert not requests_of(engine).thread.is_alive()
    async with AsyncEngine(config=eager(llama[0])) as after:
        assert (await after.generate("a", GREEDY)).text


async def test_close_ends_a_start_that_goes_on(llama: tuple[Path, LlamaForCausalLM]) -> None:
    engine = AsyncEngine(config=eager(llama[0]))
    start = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineClosed, match="closed while it started"):
        await start
    with pytest.raises(EngineClosed, match="not started, or closed"):
        await engine.generate("a")
    with pytest.raises(EngineClosed, match="closed; make a new"):
        await engine.start()
    await asyncio.to_thread(requests_of(engine).thread.join, 60)
    assert not requests_of(engine).thread.is_alive()


def test_an_exception_in_the_caller_s_loop_leaves_no_thread(llama: tuple[Path, LlamaForCausalLM]) -> None:
    started: list[AsyncEngine] = []

    async def careless() -> None:
        engine = AsyncEngine(config=eager(llama[0]))
        started.append(engine)
        await engine.start()
        await anext(engine.generate("a", LONG, stream=True))
        raise LookupError("of the caller")

    with pytest.raises(LookupError):
        asyncio.run(careless())
    requests_of(started[0]).thread.join(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "graphpod engine"]


def test_a_program_that_ends_without_close_ends(llama: tuple[Path, LlamaForCausalLM]) -> None:
    program = """
import asyncio, sys
from graphpod_runtime import AsyncEngine, SamplingOptions
loop = asyncio.new_event_loop()
engine = AsyncEngine(sys.argv[1], max_model_len=64, max_batch=2, prefill="Disabled", decode="Disabled")
loop.run_until_complete(engine.start())
options = SamplingOptions(max_tokens=2, ignore_eos=True)
print(loop.run_until_complete(engine.generate([5, 6], options)).finish_reason)
"""
    done = subprocess.run([sys.executable, "-c", program, llama[0]], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "length\n"), done.stderr


async def test_vectors_come_between_texts(engine: AsyncEngine) -> None:
    texts = [asyncio.create_task(engine.generate(prompt, GREEDY)) for prompt in PROMPTS]
    vectors = await asyncio.gather(*(engine.embed(prompt) for prompt in PROMPTS))
    assert [one.vector.shape for one in vectors] == [(48,)] * len(PROMPTS)
    again = await engine.embed(PROMPTS[0])
    assert again.vector.tolist() == pytest.approx(vectors[0].vector.tolist(), abs=1e-5)
    assert all(answer.usage.completion_tokens == 20 for answer in await asyncio.gather(*texts))
    await all_pages_are_back(engine)

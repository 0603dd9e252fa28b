"""The engine as a library, for programs with an event loop."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from graphpod_policy import EngineConfig, KvCacheDtype, Policy, Quantization, SpeculativeMethod
from graphpod_runtime.api.answers import chunks_of, generation_of, whole
from graphpod_runtime.api.embeddings import check, embedded
from graphpod_runtime.api.errors import EngineClosed, in_our_words
from graphpod_runtime.api.local_config import AUTO
from graphpod_runtime.api.metrics import Metrics
from graphpod_runtime.api.own_thread import ThreadEngine
from graphpod_runtime.api.ownership import Ownership, free_memory
from graphpod_runtime.api.prompts import LONG_TEXT, Prompt, Turns, tokens_of, tokens_of_chat
from graphpod_runtime.api.results import Chunk, Embedded, Generated
from graphpod_runtime.api.sampling_options import SamplingOptions
from graphpod_runtime.api.settings import WAITING_FOR_EACH, Settings, log, words_of
from graphpod_runtime.front.openai.service import Service

if TYPE_CHECKING:
    from graphpod_runtime.engine.runner import Runner

Tokenize = Callable[[Service], list[int]]


class AsyncEngine:
    """One engine in this process, in a thread of its own: `async with AsyncEngine(model) as engine`. It belongs to the
    event loop that started it.

    As many requests as run together, and WAITING_FOR_EACH times as many more, are with the engine at one time. Further
    calls wait, in their order, before they are tokenized.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: EngineConfig | None = None,
        name: str | None = None,
        device: str = AUTO,
        dtype: str = AUTO,
        quantization: Quantization | str | None = None,
        max_model_len: int | None = None,
        max_batch: int | None = None,
        prefill: Policy | str = Policy.Auto,
        decode: Policy | str = Policy.Auto,
        prefill_sizes: Sequence[int] | None = None,
        decode_sizes: Sequence[int] | None = None,
        kv_cache_dtype: KvCacheDtype | str = KvCacheDtype.Auto,
        speculative: SpeculativeMethod | str | None = None,
        draft_tokens: int | None = None,
        draft_topk: int = 1,
        draft_tree_tokens: int | None = None,
        draft_model: str | Path | None = None,
        drafts_max_batch: int | None = None,
        host_cache: int | None = None,
        prefill_budget: int | None = None,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        expert_parallel: int = 1,
    ) -> None:
        """Reads the folder; `start` does the rest. Arguments and errors are those of Engine."""
        self._settings = Settings.of(
            model, config, name=name, device=device, dtype=dtype, quantization=quantization,
            max_model_len=max_model_len, max_batch=max_batch, prefill=prefill, decode=decode,
            prefill_sizes=prefill_sizes, decode_sizes=decode_sizes, kv_cache_dtype=kv_cache_dtype,
            speculative=speculative,
            draft_tokens=draft_tokens, draft_topk=draft_topk, draft_tree_tokens=draft_tree_tokens,
            draft_model=draft_model, drafts_max_batch=drafts_max_batch, host_cache=host_cache,
            prefill_budget=prefill_budget,
            tensor_parallel=tensor_parallel,
            pipeline_parallel=pipeline_parallel,
            expert_parallel=expert_parallel,
        )  # fmt: skip
        self._requests: ThreadEngine | None = None
        self._ownership: Ownership | None = None
        self._service: Service | None = None
        self._runner: Runner | None = None
        self._closed = False
        self._places: asyncio.Semaphore
        """Set when the engine is Ready."""

    async def start(self) -> None:
        """Loads, captures and checks; returns when Ready. StartFailure for a start that fails, SecondEngine when there
        is another engine in this process, EngineClosed when `close` came meanwhile. Cancelled, it returns at once, and
        the thread ends after its start.
        """
        if self._closed:
            raise EngineClosed("the engine is closed; make a new AsyncEngine")
        if self._requests is not None:
            raise EngineClosed("the engine was started already; make a new AsyncEngine")
        self._ownership = Ownership.of_own_thread()
        self._requests = requests = ThreadEngine(self._ready_runner, self._ownership.end)
        requests.start()
        try:
            await requests.ready
        except BaseException:
            requests.give_up()
            raise
        runner = requests.runner
        if self._closed or runner is None:
            raise EngineClosed("the engine was closed while it started; make a new AsyncEngine")
        self._runner = runner
        self._places = asyncio.Semaphore((runner.config.max_batch or 1) * (1 + WAITING_FOR_EACH))
        self._service = self._settings.service(requests, runner.report)

    @overload
    def generate(
        self, prompt: Prompt, options: SamplingOptions | None = None, *, stream: Literal[False] = False
    ) -> Coroutine[Any, Any, Generated]: ...
    @overload
    def generate(
        self, prompt: Prompt, options: SamplingOptions | None = None, *, stream: Literal[True]
    ) -> AsyncGenerator[Chunk, None]: ...
    def generate(
        self, prompt: Prompt, options: SamplingOptions | None = None, *, stream: bool = False
    ) -> Coroutine[Any, Any, Generated] | AsyncGenerator[Chunk, None]:
        """A continuation of a text or of token ids, to await; many calls at once form batches. `stream`: an iterator of
        its pieces, `async for`. To cancel a call, or close its iterator, aborts the request.

        RequestRefused for a prompt that the model cannot take, EngineFailed when the engine fails, EngineClosed before
        `start` and after `close`.
        """
        return self._answer(lambda service: tokens_of(service, prompt), len(prompt), options, "prompt", stream=stream)

    @overload
    def chat(
        self,
        messages: Turns,
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: Literal[False] = False,
    ) -> Coroutine[Any, Any, Generated]: ...
    @overload
    def chat(
        self,
        messages: Turns,
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: Literal[True],
    ) -> AsyncGenerator[Chunk, None]: ...
    def chat(
        self,
        messages: Turns,
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: bool = False,
    ) -> Coroutine[Any, Any, Generated] | AsyncGenerator[Chunk, None]:
        """The assistant's next turn in a conversation, a list of messages as over HTTP; otherwise as `generate`.
        `variables` are the chat template's own (`enable_thinking`).
        """
        size = sum(len(str(turn)) for turn in messages)
        return self._answer(
            lambda service: tokens_of_chat(service, messages, variables), size, options, "messages", stream=stream
        )

    async def embed(self, prompt: Prompt) -> Embedded:
        """The vector of a prompt; otherwise as Engine.embed."""
        service, pooler = self._ready(), self._settings.pooler
        async with self._places:
            with in_our_words():
                long = len(prompt) > LONG_TEXT
                tokens = await asyncio.to_thread(tokens_of, service, prompt) if long else tokens_of(service, prompt)
                check(service, pooler, [tokens])
                return (await embedded(service, pooler, [tokens], 1))[0]

    @property
    def warmup(self) -> dict[str, Any]:
        """As Engine.warmup."""
        self._ready()
        assert self._runner is not None
        report: dict[str, Any] = self._runner.report.as_dict()
        return report

    def metrics(self) -> Metrics:
        """As Engine.metrics."""
        service = self._ready()
        assert self._runner is not None
        return Metrics((*self._runner.counters.snapshot(), *service.metrics.snapshot()))

    async def close(self) -> None:
        """Ends what is open, with an error, and gives thread and memory back; a second call does nothing. Waits for the
        end of a start that goes on.
        """
        self._closed = True
        self._service = self._runner = None
        requests = self._requests
        if requests is None or requests.ended.done():
            return
        requests.abort_all("the engine is closed; make a new AsyncEngine")
        requests.drain()
        await asyncio.shield(requests.ended)
        free_memory()

    async def __aenter__(self) -> "AsyncEngine":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "not running" if self._service is None else words_of(self.warmup)
        return f"<AsyncEngine {self._settings.config.model.name}: {state}>"

    def _ready_runner(self) -> "Runner":
        """In the thread: imports torch, which takes seconds."""
        from graphpod_runtime.engine.start.start_log import StartLog

        return self._settings.started(StartLog(log.info).note)

    def _ready(self) -> Service:
        if self._service is None:
            raise EngineClosed("the engine is not started, or closed: use `async with`, or await start()")
        return self._service

    def _answer(
        self, tokenize: Tokenize, size: int, options: SamplingOptions | None, param: str, *, stream: bool
    ) -> Coroutine[Any, Any, Generated] | AsyncGenerator[Chunk, None]:
        service = self._ready()
        options = options or SamplingOptions()

        async def chunks(prompt: list[int]) -> AsyncGenerator[Chunk, None]:
            with in_our_words():
                generation = generation_of(service, prompt, options, param, await service.grammar(options))
                async with contextlib.aclosing(chunks_of(generation, options, 0)) as made:
                    async for chunk in made:
                        yield chunk

        async def tokens() -> list[int]:
            with in_our_words():
                return await asyncio.to_thread(tokenize, service) if size > LONG_TEXT else tokenize(service)

        async def streamed() -> AsyncGenerator[Chunk, None]:
            async with self._places, contextlib.aclosing(chunks(await tokens())) as made:
                async for chunk in made:
                    yield chunk

        async def answered() -> Generated:
            async with self._places:
                prompt = await tokens()
                async with contextlib.aclosing(chunks(prompt)) as made:
                    return whole(prompt, [chunk async for chunk in made])

        return streamed() if stream else answered()

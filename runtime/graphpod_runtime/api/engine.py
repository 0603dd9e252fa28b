"""The engine as a library, in its caller's thread."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from graphpod_policy import EngineConfig, KvCacheDtype, Policy, Quantization, SpeculativeMethod
from graphpod_runtime.api.answers import chunks_of, generation_of, whole
from graphpod_runtime.api.callers_thread import TURNS, TurnedEngine
from graphpod_runtime.api.embeddings import check, embedded
from graphpod_runtime.api.errors import EngineClosed, RequestError, in_our_words, in_words, of_several
from graphpod_runtime.api.local_config import AUTO
from graphpod_runtime.api.metrics import Metrics
from graphpod_runtime.api.ownership import Ownership, free_memory
from graphpod_runtime.api.prompts import Prompt, Turns, is_conversation, is_prompt, tokens_of, tokens_of_chat
from graphpod_runtime.api.results import Chunk, Embedded, Generated
from graphpod_runtime.api.sampling_options import SamplingOptions
from graphpod_runtime.api.settings import Settings, log, words_of
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.wire.messages import Grammar
from graphpod_runtime.wire.report import Report

if TYPE_CHECKING:
    from graphpod_runtime.engine.runner import Runner

AT_ONCE = 4096
"""Prompts of one call that are open together; the others follow when all of these have ended."""


class Engine:
    """One engine in this process: the scheduler, runner and graphs of a server, without HTTP. It computes in the thread
    that calls it, while an answer is waited for. Threads may share it: their passes take turns.
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
        report: Callable[[Report], None] | None = None,
    ) -> None:
        """Loads, captures and checks; returns when Ready. `model` is a folder, `max_model_len` tokens, `max_batch`
        sequences; `quantization` is what plain weights become; with `speculative`, `draft_tokens` follow each token in
        batches of up to `drafts_max_batch`, or with `draft_topk` above 1 trees of `draft_tree_tokens`, and
        `draft_model` is the folder of what drafts; `host_cache` is bytes of host memory for KV pages, `prefill_budget`
        tokens of a prefill pass between two decode steps; passes of `prefill_sizes` (tokens) and `decode_sizes`
        (sequences) get a graph; `tensor_parallel` GPUs share each layer, `expert_parallel` groups of them its experts,
        `pipeline_parallel` stages the layers. Or `config` says all of it.

        ValueError for arguments that contradict each other, LocalError, TokenizerInvalid or DefaultsInvalid for what is
        wrong with the folder, StartFailure for a start that fails.
        """
        from graphpod_runtime.engine.start.start_log import StartLog

        self._settings = Settings.of(
            model, config, name=name, device=device, dtype=dtype, quantization=quantization,
            max_model_len=max_model_len, max_batch=max_batch, prefill=prefill, decode=decode,
            prefill_sizes=prefill_sizes, decode_sizes=decode_sizes, kv_cache_dtype=kv_cache_dtype,
            speculative=speculative,
            draft_tokens=draft_tokens, draft_topk=draft_topk, draft_tree_tokens=draft_tree_tokens,
            draft_model=draft_model, drafts_max_batch=drafts_max_batch, host_cache=host_cache,
            prefill_budget=prefill_budget,
            tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel, expert_parallel=expert_parallel,
        )  # fmt: skip
        self._closed = False
        self._ownership = Ownership.of_callers_thread()
        try:
            with TURNS:
                self._runner = self._settings.started(report or StartLog(log.info).note)
                self._requests = TurnedEngine(self._runner)
        except BaseException:
            self._ownership.end()
            raise
        self._service = self._settings.service(self._requests, self._runner.report)

    @overload
    def generate(
        self, prompts: Prompt, options: SamplingOptions | None = None, *, stream: Literal[False] = False
    ) -> Generated: ...
    @overload
    def generate(
        self, prompts: Sequence[Prompt], options: SamplingOptions | None = None, *, stream: Literal[False] = False
    ) -> list[Generated]: ...
    @overload
    def generate(
        self, prompts: Prompt | Sequence[Prompt], options: SamplingOptions | None = None, *, stream: Literal[True]
    ) -> Iterator[Chunk]: ...
    def generate(
        self, prompts: Prompt | Sequence[Prompt], options: SamplingOptions | None = None, *, stream: bool = False
    ) -> Generated | list[Generated] | Iterator[Chunk]:
        """A continuation of each prompt: texts or lists of token ids, one or several. `stream`: an iterator of its
        pieces; closing it aborts what is not generated yet.

        RequestRefused for a prompt that the model cannot take, before any has run; EngineClosed after `close`.
        EngineFailed when the engine fails, at once. One prompt that fails ends none of the others: its error is raised
        when all have ended, and has their `answers`.
        """
        service = self._open()
        one = is_prompt(prompts)
        with in_our_words():
            tokens = [tokens_of(service, prompt) for prompt in ([prompts] if one else prompts)]
        return self._answer(tokens, options, "prompts", one=one, stream=stream)

    @overload
    def chat(
        self,
        messages: Turns,
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: Literal[False] = False,
    ) -> Generated: ...
    @overload
    def chat(
        self,
        messages: Sequence[Turns],
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: Literal[False] = False,
    ) -> list[Generated]: ...
    @overload
    def chat(
        self,
        messages: Turns | Sequence[Turns],
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: Literal[True],
    ) -> Iterator[Chunk]: ...
    def chat(
        self,
        messages: Turns | Sequence[Turns],
        options: SamplingOptions | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        stream: bool = False,
    ) -> Generated | list[Generated] | Iterator[Chunk]:
        """The assistant's next turn in each conversation, a list of messages as over HTTP; otherwise as `generate`.
        `variables` are the chat template's own (`enable_thinking`).
        """
        service = self._open()
        one = is_conversation(messages)
        with in_our_words():
            tokens = [tokens_of_chat(service, turns, variables) for turns in ([messages] if one else messages)]
        return self._answer(tokens, options, "messages", one=one, stream=stream)

    @overload
    def embed(self, prompts: Prompt) -> Embedded: ...
    @overload
    def embed(self, prompts: Sequence[Prompt]) -> list[Embedded]: ...
    def embed(self, prompts: Prompt | Sequence[Prompt]) -> Embedded | list[Embedded]:
        """The vector of each prompt, pooled as the model's folder says; where it says nothing, the last token's state.
        Errors are those of `generate`, but one prompt that fails ends the call.
        """
        service, pooler = self._open(), self._settings.pooler
        one = is_prompt(prompts)
        found: list[Embedded] = []

        async def work(tokens: list[list[int]]) -> None:
            found.extend(await embedded(service, pooler, tokens, AT_ONCE))

        with in_our_words():
            tokens = [tokens_of(service, prompt) for prompt in ([prompts] if one else prompts)]
            check(service, pooler, tokens)
            for _ in self._requests.run([work(tokens)]):
                pass
        return found[0] if one else found

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a prompt, a begin token included where the model has one."""
        with in_our_words():
            return tokens_of(self._open(), text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids, special ones left out."""
        return self._open().tokenizer.decode(tokens)

    @property
    def runner(self) -> "Runner":
        """Model, graphs and counters, for measurements."""
        self._open()
        return self._runner

    @property
    def warmup(self) -> dict[str, Any]:
        """How the start went: the body of GET /warmup less the pod's identity. `graph` has the policy of each phase and
        how many of its sizes are captured.
        """
        self._open()
        return self._runner.report.as_dict()

    def metrics(self) -> Metrics:
        """What the engine has counted so far: the series of a server's /metrics, those of HTTP left out."""
        service = self._open()
        return Metrics((*self._runner.counters.snapshot(), *service.metrics.snapshot()))

    def close(self) -> None:
        """Ends what is open, with an error, and gives the memory back; a second call does nothing."""
        if self._closed:
            return
        from graphpod_runtime.engine.ranks.start import release

        self._closed = True
        with TURNS:
            self._requests.fail_all("the engine is closed; make a new Engine")
            self._ownership.end()
            release(self._runner)
            del self._runner, self._requests, self._service
        free_memory()

    def __enter__(self) -> "Engine":
        self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else words_of(self.warmup)
        return f"<Engine {self._settings.config.model.name}: {state}>"

    def _open(self) -> Service:
        if self._closed:
            raise EngineClosed("the engine is closed; make a new Engine")
        return self._service

    def _answer(
        self, prompts: list[list[int]], options: SamplingOptions | None, param: str, *, one: bool, stream: bool
    ) -> Generated | list[Generated] | Iterator[Chunk]:
        options = options or SamplingOptions()
        with in_our_words():
            grammar = self._service.grammar_at_once(options)
            for prompt in prompts:
                generation_of(self._service, prompt, options, param, grammar)  # refuses it, before any has run
        failed: dict[int, RequestError] = {}
        chunks = self._chunks(prompts, options, param, grammar, failed)
        if stream:
            return _ended_by(failed, chunks, len(prompts), one=one)
        parts: list[list[Chunk]] = [[] for _ in prompts]
        for chunk in chunks:
            parts[chunk.index].append(chunk)
        if not failed:
            answers = [whole(prompt, own) for prompt, own in zip(prompts, parts, strict=True)]
            return answers[0] if one else answers
        if one:
            raise failed[0]
        found = [failed.get(index) or whole(prompts[index], own) for index, own in enumerate(parts)]
        raise of_several(failed, len(prompts), found)

    def _chunks(
        self,
        prompts: list[list[int]],
        options: SamplingOptions,
        param: str,
        grammar: Grammar | None,
        failed: dict[int, RequestError],
    ) -> Iterator[Chunk]:
        """Of all prompts; the error of each that fails comes into `failed`."""
        made: list[Chunk] = []

        async def work(index: int) -> None:
            try:
                generation = generation_of(self._open(), prompts[index], options, param, grammar)
                async with contextlib.aclosing(chunks_of(generation, options, index)) as chunks:
                    async for chunk in chunks:
                        made.append(chunk)  # noqa: PERF401  a comprehension would hand them over at the end
            except ApiError as error:
                failed[index] = in_words(error)

        for first in range(0, len(prompts), AT_ONCE):
            self._open()
            works = [work(index) for index in range(first, min(first + AT_ONCE, len(prompts)))]
            with contextlib.closing(self._requests.run(works)) as passes:
                for _ in passes:
                    yield from made
                    made.clear()
            yield from made
            made.clear()


def _ended_by(failed: dict[int, RequestError], chunks: Iterator[Chunk], count: int, *, one: bool) -> Iterator[Chunk]:
    """All `chunks`, then the error of those of `count` prompts that have `failed` meanwhile."""
    yield from chunks
    if failed:
        raise failed[0] if one else of_several(failed, count)

"""One prompt's way through the engine: from its tokens to chunks of the answer, and to the whole of it."""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

from graphpod_runtime.api.results import Chunk, Generated, Usage
from graphpod_runtime.api.sampling_options import SamplingOptions
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.wire.messages import Grammar, Logprob


def generation_of(
    service: Service, prompt: list[int], options: SamplingOptions, param: str, grammar: Grammar | None
) -> Generation:
    """The work of one prompt, whose answer follows `grammar`. ApiError for one that the model cannot take; `param` is
    the caller's word for it."""
    return service.generation(
        options.model_copy(update={"return_token_ids": True}),
        [prompt],
        options.max_tokens,
        param=param,
        received=time.perf_counter(),
        logprobs=options.alternatives,
        grammar=grammar,
    )


async def chunks_of(generation: Generation, options: SamplingOptions, index: int) -> AsyncGenerator[Chunk, None]:
    """The answer as it comes. Closing it aborts what is not generated yet. ApiError when the engine fails."""
    waits = options.prompt_logprobs is not None
    async with contextlib.aclosing(_generator(generation.pieces())) as several:
        async for pieces in several:
            for piece in pieces:
                prompt, waits = tuple(generation.prompt_scores.get(0, ())) if waits else None, False
                usage = None
                if piece.finish is not None:
                    usage = Usage(generation.prompt_tokens, generation.completion_tokens, generation.cached_tokens)
                answer = None if options.logprobs is None else tuple(_logprobs(piece))
                yield Chunk(index, piece.text, piece.ids, piece.finish, answer, prompt, usage)


def whole(prompt: list[int], chunks: Iterable[Chunk]) -> Generated:
    """The answer that `chunks` are all of."""
    parts = list(chunks)
    last = parts[-1]
    assert last.finish_reason is not None
    assert last.usage is not None
    return Generated(
        text="".join(part.text for part in parts),
        token_ids=tuple(id for part in parts for id in part.token_ids),
        finish_reason=last.finish_reason,
        prompt_token_ids=tuple(prompt),
        usage=last.usage,
        logprobs=None if last.logprobs is None else tuple(one for part in parts for one in part.logprobs or ()),
        prompt_logprobs=parts[0].prompt_logprobs,
    )


def _logprobs(piece: Piece) -> Iterator[Logprob]:
    return (said.logprob for said in piece.said if said.logprob is not None)


def _generator(pieces: AsyncIterator[list[Piece]]) -> AsyncGenerator[list[Piece], None]:
    assert isinstance(pieces, AsyncGenerator)
    return pieces

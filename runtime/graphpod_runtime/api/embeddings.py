"""Vectors of prompts, as /v1/embeddings gives them."""

import time

from graphpod_runtime.api.errors import RequestRefused
from graphpod_runtime.api.results import Embedded
from graphpod_runtime.front.openai.embeddings.pooler import Pooler
from graphpod_runtime.front.openai.embeddings.vectors import scaled
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.embedding import Embedding
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.wire.bounds import outside


async def embedded(service: Service, pooler: Pooler, prompts: list[list[int]], at_once: int) -> list[Embedded]:
    """One for each prompt, `at_once` of them with the engine. ApiError when the engine fails."""
    work = Embedding(
        service.engine, service.metrics, prompts, pooler.pooling, "embedding", at_once, time.perf_counter()
    )
    vectors = await work.vectors()
    return [Embedded(scaled(raw, None, unit=True), len(prompt)) for raw, prompt in zip(vectors, prompts, strict=True)]


def check(service: Service, pooler: Pooler, prompts: list[list[int]]) -> None:
    """RequestRefused for a way of pooling that is not built, ApiError for a prompt that the model cannot take."""
    if pooler.refused:
        raise RequestRefused(f"this model has no embeddings here: {pooler.refused}", "prompts")
    most = service.status.context_tokens - 1
    for prompt in prompts:
        if not 0 < len(prompt) <= most:
            raise invalid(f"a prompt has {len(prompt)} tokens; an embedding takes 1 to {most}", param="prompts")
        if (message := outside(prompt, service.status.vocabulary)) is not None:
            raise invalid(f"prompts: {message}", param="prompts")

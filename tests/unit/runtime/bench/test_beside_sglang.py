"""The loads that SGLang gets in process, of an engine that answers at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.beside_sglang import picked, rows
from graphpod_runtime.bench.serve.figures.summary import Summary


class Echo:
    """Gives as many pieces as tokens are asked for, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[str, Any]]] = []

    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool
    ) -> AsyncIterator[Any]:
        self.asked.append((len(input_ids), sampling_params))

        async def pieces() -> AsyncIterator[Any]:
            for piece in range(sampling_params["max_new_tokens"]):
                await asyncio.sleep(0)
                yield piece

        return pieces()

    def shutdown(self) -> None:
        """Nothing to end."""


def test_a_row_asks_for_the_lengths_and_sampling_of_its_words() -> None:
    engine, found = Echo(), dict[str, list[Summary]]()
    asyncio.run(rows(engine, picked("h200-8b", ["sampled-32"]), found.__setitem__))
    [part] = found["sampled-32"]
    assert (part.completed, part.failed, part.short) == (512, 0, 0)
    measured = [asked for asked in engine.asked if asked[0] == 128]
    assert len(measured) == 512
    assert all(asked["temperature"] == 0.8 and asked["top_p"] == 0.95 and asked["ignore_eos"] for _, asked in measured)


def test_rows_that_need_a_grammar_are_left_out() -> None:
    assert {row.name for row in picked("h200-0.6b", [])} >= {"closed-32", "poisson-mix"}
    assert not [row for row in picked("h200-8b", []) if "schema" in row.name]

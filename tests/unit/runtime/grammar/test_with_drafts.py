"""Answers with grammars run in passes whose other rows are drafts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llguidance import LLTokenizer

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.wire.messages import Grammar
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.engine.test_speculation import Served


@pytest.mark.parametrize(("requests", "steps"), [(8, 16), (32, 3)])
def test_more_rows_than_requests_keep_their_masks_apart(
    started: Callable[..., Runner], model_folder: Path, vocabulary: LLTokenizer, requests: int, steps: int
) -> None:
    def texts(runner: Runner) -> dict[str, list[int]]:
        served = Served(runner)
        for index, prompt in enumerate(random_prompts(requests, seed=3, shortest=3, longest=9)):
            last = index == requests - 1
            grammar = AnswerGrammar(compiled(vocabulary, Grammar("regex", "[a-z]{30}"))) if last else None
            served.submit(str(index), prompt, 20, ignore_eos=True, grammar=grammar)
        served.drain()
        return served.got

    settings = {"folder": model_folder, "max_batch": requests, "decode_sizes": (1, 4, requests)}
    drafting = {"speculative": SpeculativeMethod.Ngram, "speculative_steps": steps, "speculative_max_batch": requests}
    assert texts(started(**settings, **drafting)) == texts(started(**settings))

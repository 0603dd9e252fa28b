"""Graphs change nothing: on real weights in fp32, the text with graphs is the text without, token for token.

A mismatch would pass only where eager's best two logits are closer than 1e-3 (contract: equality); no such case is
expected on these prompts, so none is allowed here.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from demo.weights import model_folder
from graphpod_policy import EngineConfig, Features, GraphRequest, ModelConfig, Policy, resolve
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence

pytestmark = pytest.mark.e2e

SUBJECTS = ("graphs", "the sea", "a small house in Lyon", "numbers like 3.14159", "日本の山", "🚀 rockets")
PROMPTS = tuple(
    f"<|im_start|>user\n{'Please answer at length. ' * (index * 2)}Tell me about {SUBJECTS[index % len(SUBJECTS)]}."
    f"<|im_end|>\n<|im_start|>assistant\n"
    for index in range(20)
)
"""20 prompts from about 20 to about 230 tokens."""
NEW_TOKENS = 12
SIZES = (24, 64, 128)
"""Of prefill. Prompts and their chunks lie between all of them; a start with the whole ladder takes far longer."""


@pytest.fixture(scope="module")
def model() -> Path:
    return model_folder()


def ready_runner(model: Path, request: GraphRequest) -> Runner:
    features = Features(max_model_len=512, max_batch=8)
    config = EngineConfig.of(
        features, request, resolve(features, request), model=ModelConfig("smollm2", str(model)), dtype="float32"
    )
    runner = Runner(config, lambda report: None)
    runner.start()
    return runner


@pytest.fixture(scope="module")
def with_graphs(model: Path) -> Runner:
    return ready_runner(model, GraphRequest(prefill_sizes=SIZES))


@pytest.fixture(scope="module")
def without_graphs(model: Path) -> Runner:
    return ready_runner(model, GraphRequest(prefill=Policy.Disabled, decode=Policy.Disabled))


@pytest.fixture(scope="module")
def prompts(model: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]


def said(runner: Runner, prompts: list[list[int]], batch: int) -> list[list[int]]:
    """The texts of all prompts, of which `batch` at a time are in the engine."""
    groups = [prompts[first : first + batch] for first in range(0, len(prompts), batch)]
    return [text for group in groups for text in generate(runner, group, NEW_TOKENS)]


@pytest.fixture(scope="module")
def expected(without_graphs: Runner) -> Callable[[list[list[int]]], list[list[int]]]:
    """What is said without graphs, once for each prompt: a text is that of its prompt, whatever runs with it."""
    known: dict[tuple[int, ...], list[int]] = {}

    def texts(prompts: list[list[int]]) -> list[list[int]]:
        new = [prompt for prompt in prompts if tuple(prompt) not in known]
        known.update(zip(map(tuple, new), said(without_graphs, new, 8), strict=True))
        return [known[tuple(prompt)] for prompt in prompts]

    return texts


def total(runner: Runner, name: str) -> float:
    return sum(sample.value for sample in runner.counters.snapshot() if sample.name == name)


@pytest.mark.parametrize(
    ("batch", "every"),
    [(1, 6), (8, 2), pytest.param(8, 1, marks=pytest.mark.slow), pytest.param(1, 1, marks=pytest.mark.slow)],
    ids=["1 of every sixth", "8 of every second", "8 of all", "1 of all"],
)
def test_text_with_graphs_equals_text_without_token_for_token(
    with_graphs: Runner,
    without_graphs: Runner,
    prompts: list[list[int]],
    expected: Callable[[list[list[int]]], list[list[int]]],
    batch: int,
    every: int,
):
    replays = total(with_graphs, "graphpod_graph_replays_total")
    assert said(with_graphs, prompts[::every], batch) == expected(prompts[::every])
    assert total(with_graphs, "graphpod_graph_replays_total") > replays
    assert total(with_graphs, "graphpod_graph_fallbacks_total") == 0
    assert total(without_graphs, "graphpod_graph_replays_total") == 0


def test_the_demo_s_answer_is_the_greedy_text_of_transformers(with_graphs: Runner, model: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_dict=False
    )
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        whole = reference.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)[0].tolist()
    (answer,) = generate(with_graphs, [ids], 24)
    assert answer == whole[len(ids) :]
    assert "Paris" in tokenizer.decode(answer, skip_special_tokens=True)


def test_logits_of_real_weights_are_those_of_transformers_in_fp32(
    without_graphs: Runner, model: Path, prompts: list[list[int]]
):
    """Every position of the longest prompt and of one with other scripts, to 1e-4 of the largest logit."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for prompt in (max(prompts, key=len), prompts[4]):
        with torch.no_grad():
            expected = reference(torch.tensor([prompt])).logits[0]
        difference = (prefill_logits(without_graphs, prompt) - expected).abs().max() / expected.abs().max()
        assert difference <= 1e-4


def prefill_logits(runner: Runner, prompt: list[int]) -> torch.Tensor:
    """Logits [tokens, vocab] by the engine's own eager pass."""
    engine = runner._engine
    pages = runner.pages.take(-(-len(prompt) // runner.config.page_size))
    sequence = Sequence("0", prompt, len(prompt), 1, pages=pages)
    inputs = inputs_of(PrefillBatch((Chunk(sequence, 0, len(prompt)),)), runner.config.page_size)
    with torch.no_grad():
        engine.attention.plan(inputs)
        (hidden,) = engine.passes[inputs.phase].eager(inputs, engine.attention.run, inputs.count)
        logits = engine.model.head(hidden)
    runner.pages.free(pages)
    return logits

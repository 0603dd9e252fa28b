"""Graphs change nothing: on real weights in fp32, the text with graphs is the text without, token for token.

A mismatch would pass only where eager's best two logits are closer than 1e-3 (contract: equality); no such case is
expected on these prompts, so none is allowed here.
"""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from demo.weights import model_folder
from graphpod_policy import EngineConfig, Features, GraphRequest, ModelConfig, Policy, resolve
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner

pytestmark = pytest.mark.e2e

SUBJECTS = ("graphs", "the sea", "a small house in Lyon", "numbers like 3.14159", "日本の山", "🚀 rockets")
PROMPTS = tuple(
    f"<|im_start|>user\n{'Please answer at length. ' * (index * 2)}Tell me about {SUBJECTS[index % len(SUBJECTS)]}."
    f"<|im_end|>\n<|im_start|>assistant\n"
    for index in range(20)
)
"""20 prompts from about 20 to about 230 tokens."""
NEW_TOKENS = 12


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
    return ready_runner(model, GraphRequest())


@pytest.fixture(scope="module")
def without_graphs(model: Path) -> Runner:
    return ready_runner(model, GraphRequest(prefill=Policy.Disabled, decode=Policy.Disabled))


@pytest.fixture(scope="module")
def prompts(model: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]


def total(runner: Runner, name: str) -> float:
    return sum(sample.value for sample in runner.counters.snapshot() if sample.name == name)


@pytest.mark.parametrize("batch", [1, 8])
def test_text_with_graphs_equals_text_without_token_for_token(
    with_graphs: Runner, without_graphs: Runner, prompts: list[list[int]], batch: int
):
    replays = total(with_graphs, "graphpod_graph_replays_total")
    for first in range(0, len(prompts), batch):
        group = prompts[first : first + batch]
        expected = generate(without_graphs, group, NEW_TOKENS)
        assert generate(with_graphs, group, NEW_TOKENS) == expected
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

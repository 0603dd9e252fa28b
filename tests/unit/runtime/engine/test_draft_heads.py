"""A draft head changes no text, whatever it drafts; one that knows the model is right."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from draft_heads.training import Head, Sizes
from graphpod_policy import ExitCode, Facts, Policy, SpeculativeMethod
from graphpod_policy.start.footprint import kept_states_bytes, returned_states_bytes
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.drafting import PlainReason
from graphpod_runtime.engine.start.resolver_facts import draft_facts, model_facts
from graphpod_runtime.kernels.rows.draft_rows import LENGTH
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from tests.unit.runtime.conftest import random_prompts, write_llama
from tests.unit.runtime.engine.test_speculation import POLICIES, SAMPLINGS, Served, texts, waves
from tests.unit.runtime.near_head import write_head
from truth.drafting.random_head import random_head

Start = Callable[..., Runner]


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer, which a head can repeat but for the first token of a text."""
    return write_llama(tmp_path_factory.mktemp("shallow"), num_hidden_layers=1)


@pytest.fixture(scope="module")
def eagle(shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its head."""
    return write_head(shallow, tmp_path_factory.mktemp("eagle"), SpeculativeMethod.Eagle)


def drafted_by(folder: Path, method: SpeculativeMethod = SpeculativeMethod.Eagle, **more: Any) -> dict[str, Any]:
    """Settings of an engine for which the head in `folder` drafts."""
    return {"speculative": method, "speculative_draft": str(folder), "speculative_max_batch": 8} | more


def counted(runner: Runner) -> tuple[float, float]:
    """Drafts that were verified, and those of them that were right."""
    method = runner.config.features.speculative
    proposed, accepted = (f"graphpod_speculation_{kind}_tokens_total" for kind in ("proposed", "accepted"))
    return tuple(runner.counters.value(name, method=method) for name in (proposed, accepted))


def assert_texts_stay(
    started: Start, folder: Path, policies: tuple[Policy, Policy], kind: str, drafts: dict[str, Any]
) -> None:
    """With `drafts` requests get the texts that they get without, and some drafts are right."""
    prompts = random_prompts(8)
    asked = {"max_tokens": 30, "sampling": SAMPLINGS[kind], "ignore_eos": True}
    plain = answers(started(*policies, folder=folder), prompts, **asked)
    runner = started(*policies, folder=folder, **drafts)
    assert texts(answers(runner, prompts, **asked)) == texts(plain)
    proposed, accepted = counted(runner)
    assert 0 < accepted < proposed
    assert runner.pages.available == runner.pages.capacity


def assert_waves_stay(
    started: Start, patch: pytest.MonkeyPatch, folder: Path, kind: str, kv_cache_bytes: int, drafts: dict[str, Any]
) -> None:
    """Likewise with prefix hits and the ends of chunks, and with preemptions in a small cache."""
    plain = Served(started(folder=folder))
    waves(plain, SAMPLINGS[kind], ignore_eos=True)
    patch.setenv("GRAPHPOD_DEBUG", "poison,seats,addresses")
    runner = started(folder=folder, kv_cache_bytes=kv_cache_bytes, **drafts)
    drafted = Served(runner)
    waves(drafted, SAMPLINGS[kind], ignore_eos=True)
    assert drafted.got == plain.got
    assert drafted.scheduler.kv.hit_tokens > 0
    assert (drafted.scheduler.preemptions > 0) is (kv_cache_bytes < 1 << 20)
    assert drafted.scheduler.kv.available == runner.pages.capacity


@pytest.mark.parametrize(
    ("policies", "kind"),
    [*((each, "greedy") for each in POLICIES), *((POLICIES[1], kind) for kind in ("drawn", "processed"))],
)
def test_texts_are_those_without_drafts(
    started: Start, shallow: Path, eagle: Path, policies: tuple[Policy, Policy], kind: str
) -> None:
    assert_texts_stay(started, shallow, policies, kind, drafted_by(eagle))


@pytest.mark.parametrize(("kind", "kv_cache_bytes"), [("drawn", 8 << 20), ("greedy", 230 << 10)])
def test_prefix_hits_chunk_tails_and_preemptions(
    started: Start, shallow: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kv_cache_bytes: int
) -> None:
    assert_waves_stay(started, monkeypatch, shallow, kind, kv_cache_bytes, drafted_by(eagle))


def reference(model: Path, folder: Path) -> tuple[LlamaForCausalLM, Head]:
    """The model by transformers, and the head as it is trained."""
    target = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    config = target.config
    theta = config.rope_parameters["rope_theta"]
    heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    head = Head(Sizes(config.hidden_size, config.intermediate_size, *heads, config.rms_norm_eps, theta))
    stored = load_file(folder / "model.safetensors")
    for name, tensor in head.named().items():
        tensor.data.copy_(stored[name])
    return target, head


@torch.no_grad()
def drafts_by(target: LlamaForCausalLM, head: Head, text: list[int], count: int) -> list[int]:
    """What the head drafts behind `text`, without a cache."""
    drafts: list[int] = []
    states = target.model(torch.tensor([text])).last_hidden_state
    embedding = target.get_input_embeddings()
    while len(drafts) < count:
        following = torch.tensor([text[1:] + drafts])
        true = torch.cat((states[:, :-1], states.new_zeros(1, len(drafts), states.shape[2])), 1)
        predicted = head.steps(embedding(following), true)[len(drafts)][0, -1]
        drafts.append(int(target.lm_head(predicted).argmax()))
    return drafts


def recorded_drafts(runner: Runner) -> list[tuple[int, list[int]]]:
    """The tokens of the only sequence, and the drafts behind them, of every pass from now on."""
    made: list[tuple[int, list[int]]] = []
    seats = runner.engine.seats
    propose = seats.proposer.propose

    def recorded(state: Tensor, *arguments: Any) -> Found:
        found = propose(state, *arguments)
        made.append((int(state[arguments[0][0], LENGTH]), found.drafts[0].tolist()))
        return found

    seats.proposer = SimpleNamespace(propose=recorded)
    return made


def recorded_reads(runner: Runner, patch: pytest.MonkeyPatch) -> list[int]:
    """The sequences of every eager pass of the head without drafts from now on."""
    made: list[int] = []
    head = runner.engine.seats.head
    assert head is not None
    read = head.steps.read

    def recorded(seats: Tensor, attend: Any) -> None:
        made.append(len(seats))
        read(seats, attend)

    patch.setattr(head.steps, "read", recorded)
    return made


@pytest.mark.parametrize("decode", [Policy.Disabled, Policy.Full])
def test_drafts_are_those_of_the_head_as_it_is_trained(
    started: Start, shallow: Path, eagle: Path, decode: Policy
) -> None:
    """Over true states of all that was verified, and over its own predictions behind them."""
    runner = started(Policy.Breakable, decode, folder=shallow, **drafted_by(eagle))
    made = recorded_drafts(runner)
    (prompt,) = random_prompts(1, shortest=30)
    (answer,) = answers(runner, [prompt], 40, ignore_eos=True)
    text, (target, head) = [*prompt, *answer.tokens], reference(shallow, eagle)
    assert len({length for length, _ in made}) > 10
    for length, drafts in made:
        if length + 3 < len(text):  # behind the end nothing is verified
            assert drafts == drafts_by(target, head, text[:length], 3), length


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"hidden_size": 128},
            "hidden states of 128 elements, and those of tiny have 144",
        ),
        ({"vocab_size": 97}, "a vocabulary of 97 tokens, and tiny has one of 211"),
        ({"architectures": ["MedusaModel"]}, "architecture 'MedusaModel' is no Eagle head that is built"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "it is a head of Eagle3, and the method is Eagle"),
    ],
)
def test_another_models_head_and_an_unknown_form_are_refused(
    started: Start, shallow: Path, eagle: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "head"
    shutil.copytree(eagle, folder)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(StartFailure, match=words) as caught:
        started(folder=shallow, **drafted_by(folder))
    assert caught.value.code is ExitCode.ModelUnsupported
    assert "spec.engine.speculative.draftModel" in str(caught.value)


def test_a_head_that_lacks_a_tensor_is_refused(started: Start, shallow: Path, eagle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    shutil.copytree(eagle, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.0.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(StartFailure, match=r"1 of 9 tensors are missing, first layers\.0\.mlp\.up_proj") as caught:
        started(folder=shallow, **drafted_by(folder))
    assert caught.value.code is ExitCode.ModelInvalid


def test_a_reduced_vocabulary_without_its_tokens_is_refused(started: Start, llama_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    shutil.copytree(random_head(llama_folder, SpeculativeMethod.Eagle3), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["d2t"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(StartFailure, match=r"no tensor d2t says which") as caught:
        started(**drafted_by(folder, SpeculativeMethod.Eagle3))
    assert caught.value.code is ExitCode.ModelInvalid


def test_requests_that_decode_plainly_for_a_while_are_read_before_the_next_drafts(
    started: Start, shallow: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six requests are too many for drafts; then two of them go on with some, which are as right as before. What
    the head reads meanwhile is counted as eager."""
    prompts = random_prompts(6, shortest=9, longest=30)
    plain = answers(started(folder=shallow), prompts, 40, ignore_eos=True)
    runner = started(folder=shallow, **drafted_by(eagle, speculative_max_batch=2), decode_sizes=(1, 2, 4, 8))
    served = Served(runner)
    reads = recorded_reads(runner, monkeypatch)
    for index, prompt in enumerate(prompts):
        served.submit(str(index), prompt, 40 if index < 2 else 20, ignore_eos=True)
    served.drain()
    assert reads
    assert max(reads) <= 2
    fallbacks = partial(runner.counters.value, "graphpod_graph_fallbacks_total", phase="draft")
    assert (fallbacks(), fallbacks(reason="SizeAboveLadder")) == (len(reads), len(reads))
    for index, answer in enumerate(plain):
        assert served.got[str(index)] == list(answer.tokens)[: 40 if index < 2 else 20]
    assert counted(runner)[0] > 20
    drafting = served.scheduler.drafting
    assert drafting is not None
    assert drafting.plain[PlainReason.Batch] > 60


@pytest.mark.parametrize("method", [SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3])
def test_the_plan_of_the_memory_has_the_states_that_a_head_reads(
    started: Start, llama_folder: Path, method: SpeculativeMethod
) -> None:
    runner = started(**drafted_by(random_head(llama_folder, method), method))
    head, known = runner.engine.seats.head, known_facts(runner)
    assert head is not None
    assert kept_states_bytes(runner.config, known) == dict(head.steps.tensors())["states"].nbytes
    returned = [list(graphs.outputs) for graphs in runner.engine.graphs.values()]
    aside = sum(buffers[-1][1].nbytes for buffers in returned) if method is SpeculativeMethod.Eagle3 else 0
    assert returned_states_bytes(runner.config, known) == aside


def known_facts(runner: Runner) -> Facts:
    head = runner.engine.seats.head
    assert head is not None
    return Facts(model=replace(model_facts(runner.engine.model.shape), draft=draft_facts(head.head)))


@torch.no_grad()
def drafts_by_eagle3(target: LlamaForCausalLM, head: dict[str, Tensor], text: list[int], count: int) -> list[int]:
    """What a head of EAGLE-3 drafts behind `text`, by its paper and without a cache; the model has three layers."""
    width, embedding = target.config.head_dim, target.get_input_embeddings().weight
    layers = target.model(torch.tensor([text]), output_hidden_states=True).hidden_states[:3]
    states = (torch.cat([one[0] for one in layers], -1) @ head["fc.weight"].T)[:-1]
    tokens = list(text[1:])

    def normed(x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], head[f"{name}.weight"], 1e-6)

    def product(x: Tensor, name: str) -> Tensor:
        return x @ head[f"midlayer.{name}_proj.weight"].T

    while len(tokens) < len(text) - 1 + count:
        token = normed(embedding[tokens], "midlayer.input_layernorm")
        both = torch.cat((token, normed(states, "midlayer.hidden_norm")), -1)
        q, k, v = (product(both, f"self_attn.{one}").unflatten(-1, (-1, width)).transpose(0, 1) for one in "qkv")
        angles = torch.arange(len(tokens))[:, None] * 10000.0 ** -(torch.arange(0, width, 2) / width)
        cosines, sines = (torch.cat((one, one), -1) for one in (angles.cos(), angles.sin()))
        half = width // 2
        q, k = (one * cosines + torch.cat((-one[..., half:], one[..., :half]), -1) * sines for one in (q, k))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = states + product(attended.transpose(0, 1).flatten(1), "self_attn.o")
        between = normed(x, "midlayer.post_attention_layernorm")
        x = x + product(functional.silu(product(between, "mlp.gate")) * product(between, "mlp.up"), "mlp.down")
        row = int((normed(x[-1], "norm") @ head["lm_head.weight"].T).argmax())
        tokens.append(row + int(head["d2t"][row]))
        states = torch.cat((states, x[-1:]))
    return tokens[len(text) - 1 :]


@pytest.mark.parametrize("decode", [Policy.Disabled, Policy.Full])
def test_drafts_of_eagle3_are_those_of_its_paper(started: Start, llama_folder: Path, decode: Policy) -> None:
    folder = random_head(llama_folder, SpeculativeMethod.Eagle3)
    runner = started(Policy.Breakable, decode, **drafted_by(folder, SpeculativeMethod.Eagle3))
    made = recorded_drafts(runner)
    prompts = random_prompts(1, shortest=30)
    (answer,) = answers(runner, prompts, 12, ignore_eos=True)
    assert texts([answer]) == texts(answers(started(Policy.Breakable, decode), prompts, 12, ignore_eos=True))
    text = [*prompts[0], *answer.tokens]
    target = LlamaForCausalLM.from_pretrained(llama_folder, dtype=torch.float32).eval()
    head = load_file(folder / "model.safetensors")
    checked = [drafts == drafts_by_eagle3(target, head, text[:at], 3) for at, drafts in made if at + 3 < len(text)]
    assert len(checked) > 4
    assert all(checked)

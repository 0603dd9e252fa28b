"""The whole pod on a random Llama: `graphpod-engine serve`, real engine process, real graphs on the recorder."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from graphpod_policy import ExitCode
from graphpod_policy.metrics import MOST_SERIES, Process
from graphpod_runtime.cli import main

from .conftest import Front, byte_tokenizer, launch, launch_fork, write_model
from .test_attacks import AT_ONCE, all_at_once, documented

PROMPTS = ["The capital of France is", "日本語", "a", "one two three four five six seven eight nine ten eleven"]


def write_llama(folder: Path) -> LlamaForCausalLM:
    """A random Llama over the byte tokenizer's 257 tokens; its large weights keep logits far apart."""
    write_model(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=257, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


def greedy(model: LlamaForCausalLM, prompt: str, tokens: int) -> str:
    """What transformers says."""
    ids = byte_tokenizer().encode(prompt).ids
    with torch.no_grad():
        said = model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False, pad_token_id=256)
    return byte_tokenizer().decode(said[0][len(ids) :].tolist(), skip_special_tokens=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("llama")
    return folder, write_llama(folder)


@pytest.fixture(scope="module")
def pod(llama: tuple[Path, LlamaForCausalLM], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The command as a user types it."""
    folder = tmp_path_factory.mktemp("pod")
    front = launch(folder, [sys.executable, "-m", "graphpod_runtime.cli", *words(llama[0], folder)])
    front.eventually("ready", lambda: "ready: tiny" in front.log.read_text())
    yield front
    front.process.terminate()
    assert front.ended() == ExitCode.Drained, front.log.read_text()


def serve(model: Path, folder: Path, **environment: str) -> Front:
    """A pod in a fork."""
    return launch_fork(folder, words(model, folder), **environment)


def words(model: Path, folder: Path) -> list[str]:
    """`graphpod-engine serve --model`, on free ports."""
    words = ("serve", "--model", str(model), "--name", "tiny", "--host", "127.0.0.1", "--max-model-len", "128")
    return [*words, "--http-port", "0", "--admin-port", "0", "--termination-log", str(folder / "termination-log")]


def test_the_answers_are_those_of_transformers(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    reply = pod.client().completions.create(model="tiny", prompt=PROMPTS, max_tokens=20, temperature=0)
    assert [choice.text for choice in reply.choices] == [greedy(llama[1], prompt, 20) for prompt in PROMPTS]


def test_the_log_probabilities_are_those_of_transformers(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    reply = pod.client().completions.create(
        model="tiny", prompt=PROMPTS[0], max_tokens=6, temperature=0, echo=True, logprobs=1
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    first, *told = logprobs.token_logprobs
    assert first is None
    prompt = torch.tensor([byte_tokenizer().encode(PROMPTS[0]).ids])
    with torch.no_grad():
        ids = llama[1].generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=256)
        expected = torch.log_softmax(llama[1](ids).logits[0], -1)
    wanted = [float(expected[at, id]) for at, id in enumerate(ids[0, 1:].tolist())]
    assert told == pytest.approx(wanted[: len(told)], abs=1e-4)
    assert len(told) > prompt.shape[1]


def test_the_answers_ran_on_graphs_and_none_fell_back(pod: Front) -> None:
    def counts() -> tuple[float, float, float, float]:
        return (
            pod.metric("graphpod_graph_replays_total", phase="prefill"),
            pod.metric("graphpod_graph_replays_total", phase="decode"),
            pod.metric("graphpod_graph_fallbacks_total"),
            pod.metric("graphpod_eager_passes_total"),
        )

    before = counts()
    pod.client().completions.create(
        model="tiny", prompt="abc", max_tokens=6, temperature=0, extra_body={"ignore_eos": True}
    )
    prefills, decodes, fallbacks, eager = (now - then for now, then in zip(counts(), before, strict=True))
    assert (prefills, decodes, fallbacks, eager) == (1, 5, 0, 0)


def test_every_sampling_field_reaches_the_sampler(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    """A filter that leaves the likeliest token alone gives the greedy text at any temperature; without one, seeds do
    not agree, and one seed does with itself."""

    def text(**fields: float) -> str:
        body = {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": 20, "temperature": 2.0} | fields
        return str(pod.post("/v1/completions", body).json()["choices"][0]["text"])

    likeliest = greedy(llama[1], PROMPTS[0], 20)
    for fields in ({"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-9}, {"temperature": 1e-9}):
        assert text(seed=5, **fields) == likeliest
    assert text(seed=5) == text(seed=5)
    assert len({text(seed=5), text(seed=6), likeliest}) == 3


def test_warmup_says_what_was_captured_and_that_it_is_true(pod: Front) -> None:
    warmup = pod.get("/warmup").json()
    assert (warmup["state"], warmup["backend"]) == ("Ready", "Recorder")
    for phase, policy in (("prefill", "Breakable"), ("decode", "Full")):
        graph = warmup["graph"][phase]
        assert (graph["effective"], graph["selfCheck"]) == (policy, "Passed")
        assert graph["sizes"]["captured"] == graph["sizes"]["planned"] > 0
    assert "Import" in [stage["name"] for stage in warmup["stages"]]


def test_every_row_of_the_table_has_a_series_after_a_run(pod: Front) -> None:
    pod.client().completions.create(model="tiny", prompt="abc", max_tokens=4)
    names = {line.split("{")[0].split(" ")[0] for line in pod.get("/metrics").text.splitlines() if line[0] != "#"}
    from graphpod_policy.metrics import Kind, Process, of

    missing = [
        row.name
        for row in of(Process.Engine)
        if (f"{row.name}_count" if row.kind is Kind.Histogram else row.name) not in names
    ]
    tiers = ("graphpod_host_cache_", "graphpod_prefix_cache_tier_")
    sleep = ("graphpod_asleep", "graphpod_sleep_")
    features = ("graphpod_speculation_", "graphpod_rank_", "graphpod_expert_rows_total", *tiers, *sleep)
    elsewhere = [name for name in missing if not name.startswith(features)]
    assert elsewhere == ["graphpod_trace_spans_total"], "there only where requests are traced: test_tracing.py"
    assert len(missing) == 33, (
        "six where an engine drafts: test_speculation.py, eleven with a host tier, seven of its files, "
        "four of ranks and their experts, "
        "four of weights that leave the device: test_slumber.py, and one of traces"
    )


def test_a_pod_that_ends_leaves_its_prefixes_in_files_to_the_next_one(
    llama: tuple[Path, LlamaForCausalLM], tmp_path: Path
) -> None:
    prompt, kept = (
        "A prefix of several whole pages, which nothing has pushed out of the KV cache",
        str(tmp_path / "kept"),
    )
    files = ["--host-cache", "8Mi", "--host-cache-folder", kept, "--host-cache-files", "64Mi"]

    def answer() -> tuple[str, int, dict[str, float]]:
        """Of a pod from its start to its end, with the tokens that it had and those by tier."""
        front = launch_fork(tmp_path, [*words(llama[0], tmp_path), *files], GRAPHPOD_DEBUG="reload")
        front.eventually(
            "ready, its folder read",
            lambda: all(said in front.log.read_text() for said in ("ready: tiny", "pages found")),
        )
        reply = front.client().completions.create(model="tiny", prompt=prompt, max_tokens=6, temperature=0)
        tiers = {
            name: front.metric("graphpod_prefix_cache_tier_hit_tokens_total", tier=name) for name in ("host", "file")
        }
        front.process.send_signal(signal.SIGINT)  # a drain that accepts no more requests
        assert front.ended() == ExitCode.Drained, front.log.read_text()
        assert reply.usage is not None
        details = reply.usage.prompt_tokens_details
        return reply.choices[0].text, (details and details.cached_tokens) or 0, tiers

    text, *others = answer()
    assert others == [0, {"host": 0, "file": 0}]
    assert re.search(
        r"files: [1-9]\d* pages written before the end in [\d.]+ s$", (tmp_path / "front.log").read_text(), re.M
    )
    whole = (len(prompt) - 1) // 16 * 16
    assert answer() == (text, whole, {"host": 0, "file": whole})


def test_a_request_moves_each_of_its_times_and_each_pass_its_launch(pod: Front) -> None:
    names = [f"graphpod_request_{part}_time_seconds_count" for part in ("queue", "prefill", "decode")]

    def counts() -> list[float]:
        passes = ("graphpod_forward_launch_duration_seconds_count", "graphpod_forward_duration_seconds_count")
        return [pod.metric(name) for name in (*names, *passes, "graphpod_forward_passes_total")]

    before = counts()
    pod.client().completions.create(
        model="tiny", prompt=PROMPTS, max_tokens=6, temperature=0, extra_body={"ignore_eos": True}
    )
    queued, prefilled, decoded, launched, landed, passes = (
        now - then for now, then in zip(counts(), before, strict=True)
    )
    assert queued == prefilled == decoded == len(PROMPTS)
    assert launched == landed == passes > 5


def test_the_cost_of_each_size_is_exported_and_adds_up(pod: Front) -> None:
    for phase in ("prefill", "decode"):
        sizes = pod.metric("graphpod_graphs", phase=phase)
        text = pod.get("/metrics").text
        told = re.findall(rf'graphpod_graph_size_capture_seconds{{.*phase="{phase}".*size="(\d+)"}} (\S+)', text)
        assert len(told) == sizes > 0
        assert max(int(size) for size, _ in told) == pod.metric("graphpod_graph_max_size_tokens", phase=phase)
        captured = pod.metric("graphpod_graph_capture_duration_seconds_sum", phase=phase)
        assert 0 < sum(float(seconds) for _, seconds in told) <= captured + 1e-3
        of_sizes = pod.metric("graphpod_graph_size_memory_bytes", phase=phase, kind="pool")
        assert 0 < of_sizes <= pod.metric("graphpod_graph_memory_bytes", phase=phase, kind="pool")
    assert "costs" not in pod.get("/warmup").json()["graph"]["prefill"]


def test_memory_is_that_of_weights_and_cache(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    floats = sum(parameter.numel() for parameter in llama[1].parameters())
    assert pod.metric("graphpod_memory_bytes", kind="weights") == pytest.approx(4 * floats, rel=0.1)
    page = 2 * 2 * 2 * 8 * 4 * pod.get("/warmup").json()["kv"]["pageSize"]  # keys, values; layers; heads; floats
    pages = pod.get("/warmup").json()["kv"]["pages"] + 1
    assert pod.metric("graphpod_memory_bytes", kind="kv_cache") == page * pages
    kernels = pod.get("/warmup").json()["attention"]["kernels"]
    assert pod.metric("graphpod_attention_info", kernels=kernels) == 1
    assert pod.metric("graphpod_weights_info", form="float32") == 1
    assert pod.metric("graphpod_graph_decision_info", rule="NoCuda") >= 1


def test_the_series_of_a_pod_stay_within_the_documented_bound(pod: Front) -> None:
    pod.client().completions.create(model="tiny", prompt=PROMPTS, max_tokens=6)
    for number in range(40):
        pod.post(f"/v1/{number}", {})
    before = pod.get("/metrics").text.splitlines()
    pod.client().completions.create(model="tiny", prompt=PROMPTS, max_tokens=6)
    text = pod.get("/metrics").text
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == sum(not line.startswith("#") for line in before), "a load adds none"
    assert len(series) <= MOST_SERIES[Process.Engine] / 2, "with the default ladder"


def test_a_seed_repeats_an_answer_and_a_temperature_changes_it(pod: Front) -> None:
    def ask(seed: int, temperature: float = 1.5) -> str:
        reply = pod.client().completions.create(
            model="tiny", prompt="abc", max_tokens=12, temperature=temperature, seed=seed
        )
        return reply.choices[0].text

    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(5)}) > 1


LONG = "a prompt of 4 MB"
ATTACKS: dict[str, dict[str, object]] = {
    "a token id outside the model": {"prompt": [5, 257]},
    "a negative token id": {"prompt": [-1]},
    LONG: {"prompt": "x " * 2_000_000},
    "log-probabilities of every token": {"prompt": "x" * 90_000, "echo": True, "logprobs": 20},
    "stop strings of 100 kB": {"prompt": "x", "stop": ["ab" * 50_000] * 16},
    "a temperature that is no number": {"prompt": "x", "temperature": float("nan")},
}


def test_a_pod_that_is_attacked_answers_as_before(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    """With long prompts fifty times at once; a scripted engine takes the others as often."""
    for name, attack in ATTACKS.items():
        body = json.dumps({"model": "tiny", "max_tokens": 4, **attack}).encode()
        responses = all_at_once(pod, "/v1/completions", [body] * (AT_ONCE if name == LONG else 4))
        assert all(map(documented, responses)), (name, {response.status_code for response in responses})
    reply = pod.client().completions.create(
        model="tiny", prompt=PROMPTS[0], max_tokens=20, temperature=0, echo=True, logprobs=5
    )
    assert reply.choices[0].text == PROMPTS[0] + greedy(llama[1], PROMPTS[0], 20)
    assert pod.metric("graphpod_nonfinite_logits_total") == 0
    assert pod.metric("graphpod_requests_running") == 0
    assert pod.get("/readyz").status_code == 200


@pytest.mark.parametrize("least", [{"temperature": 1e-320}, {"temperature": 1, "top_p": 1e-320}])
def test_what_is_too_small_for_single_precision_is_greedy(
    pod: Front, llama: tuple[Path, LlamaForCausalLM], least: dict[str, float]
) -> None:
    reply = pod.post("/v1/completions", {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": 8} | least).json()
    assert reply["choices"][0]["text"] == greedy(llama[1], PROMPTS[0], 8)


def test_weights_that_are_missing_end_the_pod_with_the_cause(
    llama: tuple[Path, LlamaForCausalLM], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    write_model(folder)
    (folder / "config.json").write_bytes((llama[0] / "config.json").read_bytes())
    front = serve(folder, tmp_path)
    assert front.ended() == ExitCode.ModelInvalid, front.log.read_text()
    assert front.termination_log.read_text().startswith("ModelInvalid: ")


def test_sigterm_while_the_engine_loads_ends_the_pod_at_once(
    llama: tuple[Path, LlamaForCausalLM], tmp_path: Path
) -> None:
    front = serve(llama[0], tmp_path)
    front.process.terminate()
    assert front.ended() == ExitCode.Drained, front.log.read_text()
    assert "ready" not in front.log.read_text()


def test_generate_without_a_server_says_the_same(
    llama: tuple[Path, LlamaForCausalLM], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--prompt", PROMPTS[0], "--max-tokens", "20", "--dtype", "float32", "--json"]
    assert main(["generate", "--model", str(llama[0]), *asked]) == 0
    assert greedy(llama[1], PROMPTS[0], 20) == json.loads(capsys.readouterr().out)["answers"][0]["text"]


def text(pod: Front, **fields: object) -> list[str]:
    """The answers' texts."""
    body = {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": 16, "temperature": 0} | fields
    reply = pod.post("/v1/completions", body).json()
    assert "choices" in reply, reply
    return [choice["text"] for choice in reply["choices"]]


def ids(text: str) -> list[int]:
    return list(byte_tokenizer().encode(text).ids)


def test_every_processor_reaches_the_logits(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    """Each changes the greedy answer in the way that its name says."""
    [plain] = text(pod)
    assert plain == greedy(llama[1], PROMPTS[0], 16)
    a, z = ids("a")[0], ids("z")[0]
    assert text(pod, logit_bias={str(a): 100}) == ["a" * 16]
    assert text(pod, logit_bias={str(a): 100}, bad_words=["aaa"])[0].startswith("aa")
    assert "aaa" not in text(pod, logit_bias={str(a): 100}, bad_words=["aaa"])[0]
    assert set(text(pod, allowed_token_ids=[a, z])[0]) <= {"a", "z"}
    two = {"logit_bias": {str(a): 100, str(z): 100}}
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert len({text(pod, **two, **{penalty: amount})[0] for amount in (-2, 0, 2)}) > 1
    often = text(pod, **two, frequency_penalty=2, max_tokens=100)[0]
    assert abs(often.count("a") - often.count("z")) <= 10  # each a is worth 2, and logits differ by less than 20
    assert text(pod, repetition_penalty=100) != [plain]
    assert text(pod, logit_bias={"256": 100}) == [""]
    assert len(text(pod, logit_bias={"256": 100}, min_tokens=5, max_tokens=9)[0].encode()) >= 5


def test_the_choices_of_one_seed_are_the_same_in_any_number_and_share_the_prompt(pod: Front) -> None:
    """As many as rows of a step, and more; streamed they come interleaved, by index."""
    prompt = "x" * 80
    fields = {"temperature": 1.5, "seed": 11, "prompt": prompt, "max_tokens": 8}
    several = text(pod, n=12, **fields)
    assert text(pod, n=3, **fields) == several[:3]
    assert text(pod, **fields) == several[:1]
    assert len(set(several)) > 8
    body = {"model": "tiny", "n": 3, "stream": True, "stream_options": {"include_usage": True}} | fields
    events = [json.loads(line[6:]) for line in pod.post("/v1/completions", body).text.splitlines() if "{" in line]
    streamed = ["", "", ""]
    for event in events[:-1]:
        [choice] = event["choices"]
        streamed[choice["index"]] += choice["text"]
    assert streamed == several[:3]
    usage = events[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (80, 24)
    assert usage["prompt_tokens_details"]["cached_tokens"] <= 80


def test_the_best_answers_have_the_highest_mean_log_probabilities(pod: Front) -> None:
    fields = {"temperature": 1.5, "seed": 12, "logprobs": 0, "max_tokens": 6, "ignore_eos": True}
    body = {"model": "tiny", "prompt": [PROMPTS[0], PROMPTS[2]]} | fields
    every = pod.post("/v1/completions", body | {"n": 6}).json()["choices"]
    best = pod.post("/v1/completions", body | {"n": 2, "best_of": 6}).json()
    for prompt in range(2):
        own = every[6 * prompt : 6 * prompt + 6]
        ranked = sorted(own, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
        found = best["choices"][2 * prompt : 2 * prompt + 2]
        assert [choice["text"] for choice in found] == [choice["text"] for choice in ranked[:2]]
        assert [choice["index"] for choice in found] == [2 * prompt, 2 * prompt + 1]
    assert best["usage"]["completion_tokens"] == 2 * 6 * 6


def test_prompt_log_probabilities_are_those_of_transformers(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    prompt = ids(PROMPTS[0])
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 2, "n": 2, "seed": 1}
    reply = pod.post("/v1/completions", body).json()
    with torch.no_grad():
        expected = torch.log_softmax(llama[1](torch.tensor([prompt])).logits[0], -1)
    for choice in reply["choices"]:
        first, *scores = choice["prompt_logprobs"]
        assert first is None
        for at, entries in enumerate(scores):
            row, own = expected[at], entries[str(prompt[at + 1])]
            assert own["logprob"] == pytest.approx(float(row[prompt[at + 1]]), abs=1e-4)
            assert own["rank"] == 1 + int((row > row[prompt[at + 1]]).sum())
            likeliest = row.topk(2).indices.tolist()
            assert set(entries) == {str(id) for id in (*likeliest, prompt[at + 1])}
    plain = pod.post("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1}).json()
    assert plain["choices"][0]["prompt_logprobs"] is None


def test_named_tokens_take_the_place_of_the_likeliest(pod: Front) -> None:
    named = [5, 9, 100]
    body = {"model": "tiny", "prompt": "a", "max_tokens": 2, "logprobs": 1, "logprob_token_ids": named}
    said = pod.post("/v1/completions", body | {"return_tokens_as_token_ids": True}).json()["choices"][0]["logprobs"]
    for token, top in zip(said["tokens"], said["top_logprobs"], strict=True):
        assert set(top) == {f"token_id:{id}" for id in named} | {token}


def test_what_stopped_an_answer_is_shown_on_request(pod: Front) -> None:
    """A string, a stop token, and the name of the model's end; none of them ends an answer before min_tokens."""
    a, b = ids("a")[0], ids("b")[0]
    only_a = {"logit_bias": {str(a): 100}}
    assert text(pod, stop="aaa", **only_a) == [""]
    assert text(pod, stop="aaa", include_stop_str_in_output=True, **only_a) == ["aaa"]
    assert text(pod, stop="aaa", min_tokens=5, include_stop_str_in_output=True, **only_a) == ["aaaaaa"]
    assert text(pod, stop="aaa", min_tokens=5, **only_a) == ["aaa"]
    stops = {"stop_token_ids": [b], "logit_bias": {str(a): 99, str(b): 100}, "min_tokens": 2}
    assert text(pod, **stops) == ["aa"]
    assert text(pod, include_stop_str_in_output=True, **stops) == ["aab"]
    end = {"logit_bias": {"256": 100}, "include_stop_str_in_output": True}
    assert text(pod, **end) == [""]
    [name] = text(pod, skip_special_tokens=False, **end)
    assert name == byte_tokenizer().id_to_token(256)


def test_prompts_are_cut_and_begun_as_asked(pod: Front) -> None:
    def prompt_of(**fields: object) -> list[int]:
        body = {"model": "tiny", "prompt": "abcdef", "max_tokens": 3, "return_token_ids": True} | fields
        found: list[int] = pod.post("/v1/completions", body).json()["choices"][0]["prompt_token_ids"]
        return found

    whole = prompt_of()
    assert prompt_of(truncate_prompt_tokens=2) == whole[-2:]
    assert prompt_of(truncate_prompt_tokens=2, truncation_side="right") == whole[:2]
    assert prompt_of(truncate_prompt_tokens=100) == whole
    assert len(prompt_of(prompt="x" * 500, truncate_prompt_tokens=-1)) == 128 - 3


def test_a_request_whose_masks_leave_nothing_is_refused_and_the_pod_goes_on(pod: Front) -> None:
    body = {"model": "tiny", "prompt": "a", "max_tokens": 5, "allowed_token_ids": [256], "min_tokens": 2}
    response = pod.post("/v1/completions", body)
    assert response.status_code == 400
    assert "no token can be chosen" in response.json()["error"]["message"]
    assert text(pod, max_tokens=1)
    assert pod.metric("graphpod_nonfinite_logits_total") == 0

"""inference-perf's tests against a real vLLM, re-stated: its package has no tests, and they need Python 3.12.

Source: kubernetes-sigs/inference-perf at 7de5ef2ed6f7934e0ecbc8297e593f79e68430c0,
e2e/tests/test_vllm_cpu_{golden_accuracy,token_mismatch,metric_names}.py, and the metrics that
inference_perf/client/modelserver/vllm_client.py declares.
"""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from transformers import AutoTokenizer

from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.run import Case
from peers.settings import Settings

SOURCE = "re-stated from 7de5ef2ed6f7"
SECONDS = 300
NAME = "smollm2"
REQUESTS = 10
MOCK = [f"Once upon a time, number {number} went for a walk." for number in range(REQUESTS)]
"""Natural text, as the mock data has."""


@dataclass(frozen=True, slots=True)
class Golden:
    """A row of test_vllm_cpu_golden_accuracy. `least`: answers of REQUESTS whose text has as many tokens as the server
    counted; merges of the tokenizer can only make fewer.
    """

    id: str
    chat: bool
    stream: bool
    budget: int
    least: int


GOLDEN = (
    Golden("completion-stream", False, True, 30, 10),
    Golden("completion-unary", False, False, 30, 10),
    Golden("chat-stream", True, True, 30, 10),
    Golden("chat-unary", True, False, 30, 10),
    Golden("completion-stream-budget16", False, True, 16, 6),
    Golden("completion-unary-budget2", False, False, 2, 3),
)
MOST_MERGES = 2

COUNTERS = (
    "prompt_tokens", "generation_tokens", "request_success", "num_preemptions", "prefix_cache_hits",
    "prefix_cache_queries", "prompt_tokens_cached", "external_prefix_cache_hits", "external_prefix_cache_queries",
    "mm_cache_hits", "mm_cache_queries",
)  # fmt: skip
GAUGES = ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc")
HISTOGRAMS = (
    "e2e_request_latency_seconds", "request_time_per_output_token_seconds", "time_to_first_token_seconds",
    "inter_token_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
    "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
    "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n",
    "request_params_max_tokens", "iteration_tokens_total", "request_prefill_kv_computed_tokens",
)  # fmt: skip
"""Those that it declares, less those that it knows a plain vLLM not to have (CONDITIONALLY_EXPOSED)."""


def run(settings: Settings) -> list[Case]:
    """Every case, against one engine that exposes vLLM's names."""
    with OwnEngine(
        ["serve", "--model", settings.weights, "--name", NAME, "--vllm-metric-names", *settings.engine]
    ) as engine:
        engine.ready()
        server = _Server(engine.url, settings)
        return [_case(id, check, server) for id, check in _checks()]


def _checks() -> Iterator[tuple[str, Callable[["_Server"], None]]]:
    for row in GOLDEN:
        yield f"test_golden_accuracy_vllm_cpu[{row.id}]", lambda server, row=row: golden(server, row)
    yield "test_token_counts_agree_with_server", token_counts
    yield "test_declared_metric_names_exist", declared_names


def _case(id: str, check: Callable[["_Server"], None], server: "_Server") -> Case:
    try:
        check(server)
    except (AssertionError, OSError, LookupError) as error:
        return Case("inference-perf", f"e2e::{id}", "failed", f"{type(error).__name__}: {error}", 0.0)
    return Case("inference-perf", f"e2e::{id}", "passed", "", 0.0)


class _Server:
    """Requests as inference-perf sends them: greedy (its server is started so), and past the end token."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._tokenizer = AutoTokenizer.from_pretrained(settings.tokenizer, local_files_only=True)

    def tokens(self, text: str, *, special: bool = True) -> int:
        """How many the text has."""
        return len(self._tokenizer.encode(text, add_special_tokens=special))

    def chat(self, text: str) -> str:
        """A chat's prompt."""
        turn = [{"role": "user", "content": text}]
        return str(self._tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))

    def get(self, path: str) -> str:
        """A text."""
        with urllib.request.urlopen(self._url + path, timeout=SECONDS) as answer:
            return answer.read().decode()

    def ask(self, prompt: str, row: Golden) -> tuple[str, dict[str, int], int]:
        """The answer's text, its usage, and the events that had text."""
        body: dict[str, Any] = {"model": NAME, "temperature": 0, "ignore_eos": True, "max_tokens": row.budget}
        body |= {"messages": [{"role": "user", "content": prompt}]} if row.chat else {"prompt": prompt}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if row.stream else {}
        request = urllib.request.Request(
            f"{self._url}/v1/{'chat/completions' if row.chat else 'completions'}",
            json.dumps(body).encode(), {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            said = answer.read().decode()
        if not row.stream:
            whole = json.loads(said)
            choice = whole["choices"][0]
            return choice["message"]["content"] if row.chat else choice["text"], whole["usage"], 1
        lines = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]", "the stream does not end with [DONE]"
        events = [json.loads(line) for line in lines[:-1]]
        pieces = [
            (event["choices"][0]["delta"].get("content") if row.chat else event["choices"][0]["text"]) or ""
            for event in events
            if event["choices"]
        ]
        return "".join(pieces), events[-1]["usage"], sum(map(bool, pieces))


def golden(server: _Server, row: Golden) -> None:
    """Each answer has exactly its budget of tokens by the server's count, and by ours of the text."""
    exact = 0
    for prompt in MOCK:
        text, usage, pieces = server.ask(prompt, row)
        assert usage["completion_tokens"] == row.budget, f"{usage['completion_tokens']} tokens, not {row.budget}"
        client = server.tokens(text, special=False)
        assert client <= row.budget, f"the text has {client} tokens, more than the server counted"
        assert client >= max(1, row.budget - MOST_MERGES), f"the text has {client} tokens of {row.budget}"
        exact += client == row.budget
        own = server.tokens(server.chat(prompt) if row.chat else prompt)
        assert abs(own - usage["prompt_tokens"]) <= (1 if row.chat else 0), f"{own} prompt tokens, {usage}"
        if row.stream:
            assert 2 <= pieces <= row.budget, f"{pieces} events for {row.budget} tokens"
    assert exact >= row.least, f"{exact} of {REQUESTS} answers have as many tokens as the server counted"


def token_counts(server: _Server) -> None:
    """/metrics grows by exactly the tokens of the answers' usage."""
    row = Golden("", False, True, 30, 10)
    before = server.get("/metrics")
    used = [server.ask(prompt, row)[1] for prompt in MOCK]
    after = server.get("/metrics")
    for name, field in (("vllm:generation_tokens", "completion_tokens"), ("vllm:prompt_tokens", "prompt_tokens")):
        grew = _total(after, name) - _total(before, name)
        assert grew == sum(usage[field] for usage in used), f"{name} grew by {grew}, {field} are {used}"


def declared_names(server: _Server) -> None:
    """Every metric that inference-perf's client reads of vLLM is there, by its type."""
    names = set(re.findall(r"^([a-zA-Z_:][\w:]*)", server.get("/metrics"), re.MULTILINE))
    wanted = {f"vllm:{name}": {f"vllm:{name}", f"vllm:{name}_total"} for name in COUNTERS}
    missing = [name for name, either in wanted.items() if not names & either]
    missing += [f"vllm:{name}" for name in GAUGES if f"vllm:{name}" not in names]
    parts = ("_bucket", "_count", "_sum")
    missing += [f"vllm:{name}" for name in HISTOGRAMS if not all(f"vllm:{name}{part}" in names for part in parts)]
    assert not missing, f"not exposed: {missing}"


def _total(text: str, name: str) -> float:
    found = re.findall(rf"^{re.escape(name)}(?:_total)?(?:{{[^}}]*}})? ([\d.e+]+)", text, re.MULTILINE)
    assert found, f"{name} is not exposed"
    return sum(map(float, found))

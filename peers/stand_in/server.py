"""vLLM's `RemoteOpenAIServer`: the command line that its tests write, on our engine behind the adapter."""

import atexit
from pathlib import Path
from typing import Any

import anthropic
import openai

from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.adapter import Adapter
from peers.settings import Settings

WITH_VALUE = {
    "--dtype", "--max-num-seqs", "--gpu-memory-utilization", "--max-num-batched-tokens", "--load-format", "--runner",
    "--structured-outputs-config.backend", "--max-lora-rank", "--max-cpu-loras", "--lora-modules", "--port",
    "--limit-mm-per-prompt", "--max-logprobs", "--show-hidden-metrics-for-version", "--reasoning-parser",
}  # fmt: skip
"""Flags about vLLM's own engine, about what our server does without a flag, or about how another model reasons; their
values are not read.
"""
WITHOUT_VALUE = {
    "--enforce-eager", "--enable-lora", "--enable-auto-tool-choice", "--enable-prompt-tokens-details",
    "--no-enable-prefix-caching", "--enable-chunked-prefill", "--trust-remote-code", "--enable-server-load-tracking",
    "--enable-request-id-headers", "--enable-per-request-metrics", "--enable-tokenizer-info-endpoint",
}  # fmt: skip
PARSERS = {"--tool-call-parser": ("--tool-parser", {"hermes": "Hermes"})}
"""Ours, and their values."""
CONTEXT = 2048
"""Tokens, where a test asks for no more: the KV cache of longer ones takes longer to make."""
MODEL_CONTEXT = 8192
"""SmolLM2's own."""


class FlagUnknown(Exception):
    """A test starts vLLM with a flag that our server has no counterpart for."""


class RemoteOpenAIServer:
    """A server. One engine runs at a time, and goes on for the next test that asks for it with the same words."""

    DUMMY_API_KEY = "token-abc123"
    show_hidden_metrics = False
    """Whether the server has metrics that vLLM deprecates."""
    _running: "tuple[tuple[str, ...], OwnEngine, Adapter] | None" = None

    def __init__(
        self, model: str, vllm_serve_args: list[str], *, env_dict: dict[str, str] | None = None, **more: Any
    ) -> None:
        settings = Settings.of_environment()
        words = ["serve", "--model", str(settings.weights), *_words(model, vllm_serve_args, env_dict or {}, settings)]
        asked = (*words, *vllm_serve_args)
        if self._running is None or self._running[0] != asked:
            stop()
            engine = OwnEngine(words)
            engine.ready()
            adapter = Adapter(engine.url, None, settings.cap).__enter__()
            type(self)._running = asked, engine, adapter
        assert self._running is not None
        self.port = self._running[2].port

    def __enter__(self) -> "RemoteOpenAIServer":
        return self

    def __exit__(self, *error: object) -> None:
        """The engine goes on until another is wanted."""

    @property
    def url_root(self) -> str:
        return f"http://localhost:{self.port}"

    def url_for(self, *parts: str) -> str:
        return f"{self.url_root}/{'/'.join(part.strip('/') for part in parts)}"

    def get_client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(**self._options(options))

    def get_async_client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self._options(options))

    def get_client_anthropic(self, **options: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.url_for(), api_key=self.DUMMY_API_KEY, max_retries=0, **options)

    def get_async_client_anthropic(self, **options: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(base_url=self.url_for(), api_key=self.DUMMY_API_KEY, max_retries=0, **options)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        fixed = {"base_url": self.url_for("v1"), "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 600}
        return fixed | options


def stop() -> None:
    """Ends the engine that runs, if any."""
    if (running := RemoteOpenAIServer._running) is not None:
        RemoteOpenAIServer._running = None
        running[2].__exit__(None, None, None)
        running[1].__exit__(None, None, None)


atexit.register(stop)


def _words(model: str, flags: list[str], environment: dict[str, str], settings: Settings) -> list[str]:
    """Our command line. FlagUnknown for what has no counterpart."""
    same: list[str] = []
    given: dict[str, str] = {"--max-model-len": str(CONTEXT), "--served-model-name": model}
    key = environment.get("VLLM_API_KEY")
    rest = [part for flag in flags for part in (flag.split("=", 1) if flag.startswith("--") else (flag,))]
    while rest:
        flag = rest.pop(0).replace("_", "-")
        if flag in ("--max-model-len", "--served-model-name"):
            given[flag] = rest.pop(0)
        elif flag == "--api-key":
            key = rest.pop(0)
        elif flag == "--root-path":
            same += [flag, rest.pop(0)]
        elif flag in PARSERS:
            ours, values = PARSERS[flag]
            same += [ours, values[rest.pop(0)]]
        elif flag in WITH_VALUE:
            rest.pop(0)
        elif flag not in WITHOUT_VALUE:
            raise FlagUnknown(f"our server has no counterpart for {flag}")
    words = ["--name", given["--served-model-name"], "--vllm-metric-names", *same]
    length = min(MODEL_CONTEXT, int(given["--max-model-len"]))
    words += ["--max-model-len", str(length), "--max-batch", "8" if length <= CONTEXT else "4", *settings.engine]
    if key is not None:
        file = Path(settings.folder) / "keys"
        file.write_text(f"{key}\n")
        words += ["--api-key-file", str(file)]
    return words

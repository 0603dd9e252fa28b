"""The accuracy stand-in: SmolLM2's log-likelihood of a fixed text, by every prefill policy.

The text is the beginning of Isaac Newton's Opticks, fourth edition, London 1730, which is in the public domain
(transcribed by Project Gutenberg's distributed proofreaders, as it stands in the Go sources' src/testdata).
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphpod_policy import (
    CompileMode,
    Device,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    Phase,
    Policy,
    resolve,
)
from graphpod_runtime import Engine, SamplingOptions
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.front.text.tokenizer import Tokenizer, TokenizerInvalid
from truth.axes import PREFILLS, Variant, refused_by

TEXT = Path(__file__).with_name("text") / "opticks.txt"
WINDOW = 500
"""Tokens of one request: its graph is padded."""
WINDOWS = 41
GRAPH = 512
ALLOWED = 1e-3
"""Relative difference from eager."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Likelihood:
    """`nats`: the text's negative log-likelihood under one policy, over `tokens` tokens; `refused` names the rule when
    the policy cannot run, `failed` says what went wrong.
    """

    prefill: Policy
    tokens: int = 0
    nats: float = 0.0
    refused: str = ""
    failed: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Likelihood":
        """From `as_dict`."""
        return cls(**raw | {"prefill": Policy(raw["prefill"])})

    def apart(self, eager: "Likelihood") -> float:
        """Relative difference."""
        return abs(self.nats - eager.nats) / eager.nats


class NotOnGraph(Exception):
    """Passes that were to run on a graph ran eagerly: the figure would prove nothing."""


def measure(weights: Path, device: Device, began: float) -> list[Likelihood]:
    """Eager first, then every other prefill policy. Prints a line a window, with the seconds since `began`, of
    time.monotonic(); may run in a process of its own.
    """

    def say(text: str) -> None:
        print(f"          {time.monotonic() - began:6.1f} s  accuracy, {text}", flush=True)

    found = []
    for policy in PREFILLS:
        try:
            found.append(_of_policy(weights, device, policy, say))
        except (StartFailure, TokenizerInvalid, NotOnGraph) as error:
            found.append(Likelihood(policy, failed=str(error)))
    return found


def failures(found: list[Likelihood]) -> list[str]:
    """What differs from eager by more than is allowed."""
    if failed := [f"accuracy, {one.prefill}: {one.failed}" for one in found if one.failed]:
        return failed
    eager, *others = found
    return [
        f"accuracy, {one.prefill}: log-likelihood differs from eager's by {one.apart(eager):.2%}"
        for one in others
        if not one.refused and not one.apart(eager) <= ALLOWED
    ]


def _of_policy(weights: Path, device: Device, prefill: Policy, say: Say) -> Likelihood:
    features = Features(
        device=device,
        gpus=1 if device is Device.Cuda else 0,
        max_model_len=GRAPH + 1,
        max_batch=1,
        prefill_chunk=GRAPH,
    )
    if rule := refused_by(features, Variant(prefill, Policy.Disabled)):
        return Likelihood(prefill, refused=rule)
    sizes = None if prefill is Policy.Disabled else (GRAPH,)
    request = GraphRequest(prefill, Policy.Disabled, prefill_sizes=sizes, compile=CompileMode.Nothing)
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(weights.name, str(weights)),
        dtype="float32",
    )
    with Engine(config=config) as engine:
        # This is the measurement that the gate of input log-probabilities waits for: it must not keep it off the graph.
        ladders = engine.runner.engine.ladders
        ladders[Phase.Prefill] = replace(ladders[Phase.Prefill], gates=())
        tokens = Tokenizer(weights).encode(TEXT.read_text())
        if len(tokens) < WINDOW * WINDOWS:
            raise ValueError(f"{TEXT} has {len(tokens)} tokens for {weights.name}, {WINDOW * WINDOWS} are wanted")
        count, nats = 0, 0.0
        for window in range(WINDOWS):
            text = tokens[window * WINDOW : (window + 1) * WINDOW]
            scored = engine.generate(text, SamplingOptions(max_tokens=1, prompt_logprobs=0)).prompt_logprobs or ()
            count += len(scored)
            nats -= sum(logprob.logprob for logprob in scored)
            say(f"{prefill}: window {window + 1} of {WINDOWS}, {nats / count:.4f} nats a token")
        eager = int(engine.metrics().value("graphpod_eager_passes_total", phase=Phase.Prefill))
        if eager != (WINDOWS if prefill is Policy.Disabled else 0):
            raise NotOnGraph(f"{prefill}: {eager} of {WINDOWS} passes ran eagerly")
        return Likelihood(prefill, count, nats)

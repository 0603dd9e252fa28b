"""Answers to drawn schemas, by the engine over a small random model with a real tokenizer:

    python -m benchmarks.schemas --packages FOLDER [--count 1000] [--seed 19]

The model knows nothing, so the grammar alone makes the answers; a bias towards closing brackets lets them end. An
answer that stops must be valid for the `jsonschema` package.
"""

import argparse
import json
import platform
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import torch
from llguidance import LLTokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.schemas.page import write_page
from benchmarks.schemas.sets import PACKAGES, Schema, drawn
from graphpod_policy import EngineConfig, GraphConfig, ModelConfig, PhasePlan, Policy
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.grammar.bounds import GrammarInvalid
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import FinishReason, Grammar

RESULTS = Path("benchmarks/results/schemas.json")
CLOSING = ('"', '"}', '"]', "}", "]", '"}}', "}}", "]}", '",', "1", "0")
TOKENS, BATCH = 320, 8


@dataclass
class Verdict:
    """Of one schema. `outcome`: valid, cut (max_tokens), refused, wrong, or unjudged (jsonschema cannot say)."""

    set: str
    name: str
    outcome: str
    reason: str = ""
    compile_seconds: float = 0.0
    tokens: int = 0


@dataclass
class Sweep:
    """All verdicts of one run."""

    provenance: dict[str, str]
    verdicts: list[Verdict] = field(default_factory=list)


def tiny_model(folder: Path, tokenizer: Path) -> Path:
    """A random Llama of one layer with the vocabulary of `tokenizer`."""
    torch.manual_seed(0)
    text = (tokenizer / "tokenizer.json").read_text()
    size = LLTokenizer(text).vocab_size
    config = LlamaConfig(
        vocab_size=size, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    (folder / "tokenizer.json").write_text(text)
    return folder


def started(folder: Path) -> Runner:
    """An engine over it, with the graphs of decode."""
    phases = PhasePlan(Policy.Disabled, Policy.Disabled, ()), PhasePlan(Policy.Full, Policy.Full, (1, 2, 4, BATCH))
    config = EngineConfig(
        model=ModelConfig("tiny", str(folder)), graph=GraphConfig(*phases), dtype="float32", max_model_len=512,
        max_batch=BATCH, prefill_chunk=32, page_size=16, kv_cache_bytes=16 << 20,
    )  # fmt: skip
    runner = Runner(config, lambda report: None)
    runner.start()
    return runner


def sweep(runner: Runner, vocabulary: LLTokenizer, schemas: list[Schema]) -> list[Verdict]:
    """Compiles and answers all of them."""
    verdicts, sequences = list[Verdict](), dict[str, tuple[Verdict, Sequence, Schema]]()
    bias = {vocabulary.tokenize_str(text)[0]: 6.0 for text in CLOSING if len(vocabulary.tokenize_str(text)) == 1}
    for index, one in enumerate(schemas):
        verdict, began = Verdict(one.set, one.name, "refused"), time.perf_counter()
        verdicts.append(verdict)
        try:
            matcher = compiled(vocabulary, Grammar("json_schema", json.dumps(one.schema)))
        except GrammarInvalid as error:
            verdict.reason = str(error)
            continue
        finally:
            verdict.compile_seconds = round(time.perf_counter() - began, 5)
        sampling = Sampling(1.0, seed=index, processing=LogitProcessing(bias=bias))
        own = Sequence(str(index), [5, 6, 7], 3, TOKENS, sampling, grammar=AnswerGrammar(matcher.deep_copy()))
        sequences[own.id] = verdict, own, one
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, len(sequences)), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for _, own, _ in sequences.values():
        scheduler.submit(own)
    while run_ahead.busy:
        for progress in run_ahead.turn():
            if progress.finish is not None:
                verdict, own, one = sequences[progress.sequence.id]
                answer = own.tokens[own.prompt_len :]
                verdict.tokens = len(answer)
                if progress.finish is FinishReason.Stop:
                    text = vocabulary.decode_bytes([t for t in answer if t not in runner.eos_ids]).decode()
                    verdict.outcome, verdict.reason = judged(text, one.schema)
                else:
                    verdict.outcome = "cut" if progress.finish is FinishReason.Length else "ended"
                    verdict.reason = progress.message or ""
    return verdicts


def judged(text: str, schema: Any) -> tuple[str, str]:
    """The outcome of an answer that stopped, and why."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return "wrong", f"not JSON: {error}: {text[:200]}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            kind(schema).validate(value)
    except jsonschema.ValidationError as error:
        return "wrong", f"{error.message[:200]}: {text[:200]}"
    except Exception as error:  # noqa: BLE001  patterns of JavaScript, references to other documents
        return "unjudged", f"{type(error).__name__}: {error}"[:200]
    return "valid", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="folder for the downloaded packages")
    parser.add_argument("--tokenizer", type=Path, required=True, help="model folder whose tokenizer is used")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        runner = started(tiny_model(Path(folder), options.tokenizer))
        vocabulary = read_vocabulary(Path(folder), runner.vocabulary, runner.eos_ids)
        verdicts = sweep(runner, vocabulary, drawn(options.packages, options.count, options.seed))
    provenance = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("llguidance", "torch", "jsonschema")),
        "packages": ", ".join(package for package, _ in PACKAGES.values()),
        "draw": f"{len(verdicts)} schemas by seed {options.seed}, {time.perf_counter() - began:.0f} s",
    }
    result = asdict(Sweep(provenance, verdicts))
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.json == RESULTS:
        write_page(result)
    counts = Counter(verdict.outcome for verdict in verdicts)
    print(", ".join(f"{name} {count}" for name, count in counts.most_common()))
    return 1 if counts["wrong"] or counts["ended"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

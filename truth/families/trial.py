"""One model type: a small random model of it, through the engine, against transformers one sequence at a time."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from graphpod_policy import (
    Device,
    EngineConfig,
    Facts,
    Features,
    GraphRequest,
    ModelConfig,
    ModelFacts,
    OnCaptureFailure,
    Phase,
    refine,
    resolve,
)
from graphpod_policy.model import families
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.models.by_transformers.model import transformers_model
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported
from graphpod_runtime.models.config_json import read_declared
from graphpod_runtime.models.loader import load_model
from truth.families.row import row_of
from truth.families.tiny import CONTEXT, VOCAB, tiny

STEPS = 32
"""Tokens of each answer: the first comes from the prompt's pass, the others from decode steps."""
LENGTHS = (1, 3, 7, 12, 19, 26, 41, 70)
"""Tokens of the prompts of one batch. The last two are longer than a chunk."""
CHUNK = 32
PREFIX = 40
"""Tokens that later prompts have in common with the longest one."""
TAILS = (1, 9)
"""Tokens that they have of their own."""
PAGE = 8
SIZES: dict[Phase, tuple[int, ...]] = {Phase.Prefill: (4, 16, CHUNK), Phase.Decode: (1, 2, 4, 8)}
NEAR = 1e-3
"""That log-probabilities may differ, in float32."""


@dataclass(slots=True)
class Trial:
    """What a run has shown; `outcome` is Equal, Wrong, Refused or Failed."""

    model_type: str
    outcome: str
    variant: str = ""
    """The name of the changes to its small configuration; "": none."""
    row: dict[str, Any] = field(default_factory=dict)
    """Architecture and fields of its sizes."""
    path: str = ""
    """Whose modules computed it."""
    prefill: str = ""
    decode: str = ""
    refused: str = ""
    because: str = ""
    recurrent: bool = False
    steps: int = STEPS
    """Tokens of each answer."""
    tokens: int = 0
    """Compared."""
    furthest: float = 0.0
    """Difference of two log-probabilities."""
    replays: int = 0
    fallbacks: int = 0
    prefix: int = 0
    """Tokens that later prompts found in the prefix cache."""
    decisions: list[str] = field(default_factory=list)


def tried(
    model_type: str,
    folder: Path,
    device: Device = Device.Cpu,
    respelt: Callable[[Path], None] | None = None,
    **changes: Any,
) -> Trial:
    """The trial of `model_type`, with `changes` to its small configuration; its files go to the empty `folder`, where
    `respelt` may write config.json in other words. Whatever it raises is its outcome."""
    torch.set_num_threads(1)
    trial = Trial(model_type, "Failed")
    try:
        trial.row = row_of(model_type)
        trial.recurrent = trial.row.pop("recurrent")
        config = tiny(model_type, **changes)
        reference = written(config, folder, respelt)
    except Exception as error:  # noqa: BLE001 (a family's own code may raise anything)
        trial.outcome, trial.refused, trial.because = "Refused", "Config", _said(error)
        return trial
    try:
        saved = json.loads((folder / "config.json").read_bytes())["model_type"]
        # A model of several parts saves that of its text.
        row = trial.row if saved == model_type or saved not in CAUSAL else row_of(saved)
        with only(saved, row, folder.parent / f"{folder.name}.json"):
            runner = _started(folder, device)
            explained = _explained(folder, device)
    except FamilyUnsupported as error:
        trial.outcome, trial.refused, trial.because = "Refused", error.lack.value, str(error)
        return trial
    except Exception as error:  # noqa: BLE001
        cause = error.__cause__
        if isinstance(cause, FamilyUnsupported):
            trial.outcome, trial.refused, trial.because = "Refused", cause.lack.value, str(cause)
        else:
            trial.because = _said(error)
        return trial
    trial.path = runner.engine.model.shape.path.value
    trial.prefill, trial.decode = (runner.report.phases[phase].effective.value for phase in Phase)
    trial.decisions = [f"{one.phase}: {one.rule}: {one.because}" for one in runner.report.decisions]
    try:
        sequences = _answered(runner)
    except Exception as error:  # noqa: BLE001
        trial.because = _said(error)
        return trial
    _compare(trial, reference, sequences)
    # What a rehearsal finds in a model's code no config.json says.
    seen = (trial.path, trial.prefill, trial.decode)
    if trial.outcome == "Equal" and not runner.engine.model.shape.uncapturable and seen != explained:
        trial.outcome, trial.because = "Wrong", f"config.json says {explained}, and it runs as {seen}"
    trial.replays = int(runner.counters.value("graphpod_graph_replays_total"))
    trial.fallbacks = int(runner.counters.value("graphpod_graph_fallbacks_total"))
    return trial


def written(config: Any, folder: Path, respelt: Callable[[Path], None] | None = None) -> Any:
    """A random model of `config` in `folder`, as transformers loads it. Norms and biases are random, too."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.15 / max(1e-6, float(parameter.std())))
            elif "norm" in name.lower() or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    if json.loads((folder / "config.json").read_bytes())["model_type"] not in CAUSAL:
        # The text part of a model of several, which transformers loads by the whole configuration alone.
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
    if respelt is not None:
        respelt(folder)
    kinds = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **kinds).eval()


def _asked(device: Device) -> tuple[Features, GraphRequest]:
    features = Features(
        device=device,
        gpus=1 if device is Device.Cuda else 0,
        max_model_len=CONTEXT,
        max_batch=len(LENGTHS),
        prefill_chunk=CHUNK,
    )
    return features, GraphRequest(
        prefill_sizes=SIZES[Phase.Prefill],
        decode_sizes=SIZES[Phase.Decode],
        on_capture_failure=OnCaptureFailure.Degrade,
    )


def _explained(folder: Path, device: Device) -> tuple[str, str, str]:
    """Path and policies that `graphpod explain` gives the config.json of `folder`."""
    features, request = _asked(device)
    model = ModelFacts.of(json.loads((folder / "config.json").read_bytes()))
    plan = refine(resolve(features, request), Facts(model=model))
    return model.path.value, plan.phases[Phase.Prefill].planned.value, plan.phases[Phase.Decode].planned.value


def _started(folder: Path, device: Device) -> Runner:
    features, request = _asked(device)
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(folder.name, str(folder)),
        dtype="float32",
        page_size=PAGE,
        kv_cache_bytes=64 << 20,
    )
    runner = Runner(config, lambda report: None, load=_load)
    runner.start()
    return runner


@contextmanager
def only(model_type: str, row: Mapping[str, Any], path: Path) -> Iterator[None]:
    """The rules know this type, whose trial is about to show whether they should, and no other."""
    path.write_text(json.dumps({"transformers": transformers.__version__, "families": {model_type: dict(row)}}))
    before, families.TABLE = families.TABLE, path
    families.families.cache_clear()
    try:
        yield
    finally:
        families.TABLE = before
        families.families.cache_clear()


def _load(folder: Path, dtype: torch.dtype, length: int, place: torch.device, read: Any, quantize: bool) -> Any:
    """As the engine does it, but that no type is refused for what the table says."""
    if read_declared(folder).row is not None:
        return load_model(folder, dtype, length, place, read, quantize)
    return transformers_model(folder, dtype, length, place, read)


def _prompts(vocabulary: int) -> tuple[list[list[int]], list[list[int]]]:
    """A batch, and prompts that begin as its longest one."""
    generator = torch.Generator().manual_seed(1)

    def drawn(count: int) -> list[int]:
        return torch.randint(3, min(VOCAB, vocabulary), (count,), generator=generator).tolist()

    batch = [drawn(length) for length in LENGTHS]
    return batch, [batch[-1][:PREFIX] + drawn(tail) for tail in TAILS]


def _answered(runner: Runner) -> list[Sequence]:
    limits = replace(Limits.of(runner.config, max_queue=len(LENGTHS)), prefix_cache=True)
    scheduler = Scheduler(runner.pages, limits, runner.eos_ids)
    done: list[Sequence] = []
    for wave, prompts in enumerate(_prompts(runner.vocabulary)):
        sequences = [
            Sequence(
                f"{wave}.{index}",
                list(prompt),
                len(prompt),
                STEPS,
                Sampling(),
                ignore_eos=True,
                wants=LogprobRequest(answer=1),
            )
            for index, prompt in enumerate(prompts)
        ]
        for sequence in sequences:
            scheduler.submit(sequence)
        run_ahead = RunAhead(scheduler, runner)
        while run_ahead.busy:
            for progress in run_ahead.turn():
                if progress.logprob is not None:
                    progress.sequence.prompt_logprobs.append(progress.logprob)
        done += sequences
    return done


def _compare(trial: Trial, reference: Any, sequences: list[Sequence]) -> None:
    """Every token of every answer, and its log-probability, with what transformers says of the same text alone."""
    trial.outcome = "Equal"
    for sequence in sequences:
        trial.prefix += sequence.cached or 0
        with torch.no_grad():
            scores = reference(input_ids=torch.tensor([sequence.tokens[:-1]]), use_cache=False).logits[0].float()
        wanted = scores[sequence.prompt_len - 1 :].log_softmax(-1)
        for difference in _differences(sequence, wanted):
            trial.tokens += 1
            trial.furthest = max(trial.furthest, difference)
    if not trial.furthest <= NEAR or trial.tokens != len(sequences) * STEPS:
        trial.outcome = "Wrong"
    elif not trial.prefix:
        trial.outcome, trial.because = "Failed", "no later prompt found its beginning in the prefix cache"


def _differences(sequence: Sequence, wanted: Tensor) -> Iterator[float]:
    """How far each log-probability is from `wanted`, and how much less likely a chosen token is than the likeliest."""
    answer = sequence.tokens[sequence.prompt_len :]
    for step, (token, scored) in enumerate(zip(answer, sequence.prompt_logprobs, strict=True)):
        own = float(wanted[step, token])
        behind = float(wanted[step].max()) - own
        difference = max(abs(float(scored.logprob) - own), behind)
        yield difference if difference == difference else float("inf")


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]

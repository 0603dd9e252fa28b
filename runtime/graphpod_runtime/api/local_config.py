"""`serve --model DIR`: an engine configuration for a folder on this machine, resolved as the operator would."""

import argparse
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from graphpod_policy import (
    Device,
    EngineConfig,
    ExitCode,
    Features,
    GraphRequest,
    KvCacheDtype,
    ModelConfig,
    ModelFacts,
    Policy,
    Quantization,
    ServingConfig,
    SpeculativeMethod,
    limits,
    not_built,
    resolve,
)
from graphpod_policy.engine_features import WITH_WEIGHTS
from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_policy.start.draft_trees import tree_problem
from graphpod_policy.start.flags import OF_TREES, in_flags
from graphpod_runtime.api.gpus import Gpus, usable_gpus
from graphpod_runtime.base.arguments import POLICIES, memory, number, one_of, sizes
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object

AUTO = "auto"
OF_SERVERS = ("host_cache_folder", "host_cache_files", "sleep", "sleep_after", "reload", "nodes")
"""Options that an engine in the caller's process does not have."""


class LocalError(ValueError):
    """The folder or the request cannot be served; the message says what to change, `code` which of them it is."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """What the command line says of the engine. `max_model_len` is tokens, `max_batch` sequences; `device` and `dtype`
    may be "auto".
    """

    model: Path
    name: str | None = None
    device: str = AUTO
    dtype: str = AUTO
    quantization: Quantization | None = None
    max_model_len: int | None = None
    max_batch: int | None = None
    prefill_budget: int | None = None
    """Tokens; None: measured at the start."""
    prefill: Policy = Policy.Auto
    decode: Policy = Policy.Auto
    kv_cache_dtype: KvCacheDtype = KvCacheDtype.Auto
    prefill_sizes: tuple[int, ...] | None = None
    """Tokens of the passes that get a graph; None: the default ladder."""
    decode_sizes: tuple[int, ...] | None = None
    """The same in sequences."""
    speculative: SpeculativeMethod | None = None
    draft_tokens: int | None = None
    draft_topk: int = 1
    draft_tree_tokens: int | None = None
    draft_model: Path | None = None
    drafts_max_batch: int | None = None
    host_cache: int | None = None
    """Bytes."""
    host_cache_folder: Path | None = None
    host_cache_files: int | None = None
    """Bytes."""
    tensor_parallel: int = 1
    """Ranks of a stage."""
    expert_parallel: int = 1
    pipeline_parallel: int = 1
    """Stages."""
    sleep: bool = False
    sleep_after: int | None = None
    """Seconds without requests."""
    reload: bool = False
    nodes: int = 1
    """Machines."""

    def of_library(self) -> dict[str, Any]:
        """Arguments of an Engine."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in OF_SERVERS}

    @classmethod
    def of(cls, options: argparse.Namespace) -> "LocalOptions":
        """Those that `add_local_options` has added."""
        return cls(
            model=options.model,
            name=getattr(options, "name", None),
            device=options.device,
            dtype=options.dtype,
            quantization=options.quantization,
            max_model_len=options.max_model_len,
            max_batch=options.max_batch,
            prefill_budget=options.prefill_budget,
            prefill=options.prefill,
            decode=options.decode,
            kv_cache_dtype=options.kv_cache_dtype,
            prefill_sizes=options.prefill_sizes,
            decode_sizes=options.decode_sizes,
            speculative=options.speculative,
            draft_tokens=options.draft_tokens,
            draft_topk=options.draft_topk,
            draft_tree_tokens=options.draft_tree_tokens,
            draft_model=options.draft_model,
            drafts_max_batch=options.drafts_max_batch,
            host_cache=options.host_cache,
            host_cache_folder=getattr(options, "host_cache_folder", None),
            host_cache_files=getattr(options, "host_cache_files", None),
            tensor_parallel=options.tensor_parallel,
            expert_parallel=options.expert_parallel,
            pipeline_parallel=options.pipeline_parallel,
            sleep=getattr(options, "sleep", False),
            sleep_after=getattr(options, "sleep_after", None),
            reload=getattr(options, "reload", False),
            nodes=getattr(options, "nodes", 1),
        )


def add_local_options(parser: argparse._ActionsContainer, files: bool = False) -> tuple[argparse.Action, ...]:
    """The options of `serve --model` and `generate` alike. `files`: those of the host cache's files, too, which only a
    server has.
    """
    return (
        parser.add_argument(
            "--device", choices=(AUTO, *Device), default=AUTO, help="auto: a GPU where there is one, else the CPU"
        ),
        parser.add_argument(
            "--dtype",
            choices=(AUTO, *EngineConfig.DTYPES),
            default=AUTO,
            help="auto: bfloat16 on a GPU (float16 where it has none), else float32",
        ),
        parser.add_argument(
            "--quantization",
            type=one_of(Quantization),
            metavar="FORM",
            help="Fp8: weights become FP8 when they are loaded; a checkpoint that is FP8 needs no option",
        ),
        parser.add_argument(
            "--max-model-len",
            type=number(int, 1, limits.MOST_CONTEXT),
            metavar="TOKENS",
            help="prompt and answer; default: the model's own, as far as the KV cache holds it; "
            f"at most {limits.SMALL_CONTEXT} on a CPU",
        ),
        parser.add_argument(
            "--max-batch",
            type=number(int, 1, limits.MOST_BATCH),
            metavar="SEQUENCES",
            help="default: 256 on a GPU as far as the KV cache holds them, else 8",
        ),
        parser.add_argument(
            "--prefill-budget",
            type=number(int, 1, limits.MOST_CONTEXT),
            metavar="TOKENS",
            help="prompt tokens between two decode passes: more answer sooner, fewer stream more evenly; "
            "default: as many as delay a decode by twice its time, measured at the start",
        ),
        parser.add_argument("--prefill", type=one_of(Policy), default=Policy.Auto, metavar="POLICY", help=POLICIES),
        parser.add_argument("--decode", type=one_of(Policy), default=Policy.Auto, metavar="POLICY", help=POLICIES),
        parser.add_argument(
            "--prefill-sizes",
            type=sizes,
            metavar="TOKENS",
            help="prefill passes that get a graph, as 64,256,1024; default: a ladder by device and model",
        ),
        parser.add_argument(
            "--decode-sizes",
            type=sizes,
            metavar="SEQUENCES",
            help="decode passes that get a graph, as 1,2,4,8; default: a ladder up to --max-batch",
        ),
        parser.add_argument(
            "--kv-cache-dtype",
            type=one_of(KvCacheDtype),
            default=KvCacheDtype.Auto,
            metavar="FORM",
            help="Fp8: the KV cache holds about twice the tokens; default: Auto, the type of --dtype",
        ),
        parser.add_argument(
            "--speculative",
            type=one_of(SpeculativeMethod),
            metavar="METHOD",
            help="speculative decoding: Ngram drafts what followed the same tokens before, DraftModel by a smaller "
            "model, Eagle and Eagle3 by a head that was trained for the model, Mtp by a layer of its checkpoint; "
            "default: off",
        ),
        parser.add_argument(
            "--draft-model",
            type=Path,
            metavar="FOLDER",
            help="the smaller model or the head that drafts, of the same vocabulary",
        ),
        parser.add_argument(
            "--draft-tokens",
            type=number(int, 1, 16),
            metavar="TOKENS",
            help="drafts of a request in a pass, or of each branch of a tree; default: 3",
        ),
        parser.add_argument(
            "--draft-topk",
            type=number(int, 1, 16),
            default=1,
            metavar="BRANCHES",
            help="above 1 drafts of a head are a tree: the branches that each step follows; default: 1",
        ),
        parser.add_argument(
            "--draft-tree-tokens",
            type=number(int, 1, MOST_TREE_TOKENS),
            metavar="TOKENS",
            help="drafts of a tree that a pass verifies; default: --draft-tokens times --draft-topk",
        ),
        parser.add_argument(
            "--drafts-max-batch",
            type=number(int, 1, 4096),
            metavar="SEQUENCES",
            help="larger batches decode without drafts; default: measured at the start",
        ),
        parser.add_argument(
            "--host-cache",
            type=memory,
            metavar="SIZE",
            help="host memory for KV pages that leave the KV cache, as 32Gi; default: none",
        ),
        *(_add_file_options(parser) if files else ()),
        parser.add_argument(
            "--tensor-parallel",
            type=number(int, 1, 64),
            default=1,
            metavar="RANKS",
            help="GPUs that share the model, each with a part of every layer; on a CPU processes; default: 1",
        ),
        parser.add_argument(
            "--expert-parallel",
            type=number(int, 1, 64),
            default=1,
            metavar="GROUPS",
            help="groups of the ranks of --tensor-parallel, which have a share of the experts each; default: 1, each "
            "rank has columns of every expert",
        ),
        parser.add_argument(
            "--pipeline-parallel",
            type=number(int, 1, 64),
            default=1,
            metavar="STAGES",
            help="stages that the layers are divided into, with a GPU each, or --tensor-parallel of them; default: 1",
        ),
    )


def _add_file_options(parser: argparse._ActionsContainer) -> tuple[argparse.Action, ...]:
    return (
        parser.add_argument(
            "--host-cache-folder",
            type=Path,
            metavar="FOLDER",
            help="files of KV pages under --host-cache, which outlive the server; needs --host-cache-files",
        ),
        parser.add_argument(
            "--host-cache-files", type=memory, metavar="SIZE", help="what these files may take, as 200Gi"
        ),
    )


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk, as logging takes one, too
        print(f"graphpod-engine: {line}", file=sys.stderr)


def local_config(
    options: LocalOptions,
    find_gpus: Callable[[], Gpus] = usable_gpus,
    say: Callable[[str], None] = _say,
    *,
    serving: ServingConfig | None = None,
) -> EngineConfig:
    """The configuration; LocalError for a folder without config.json or a policy that is not built. What device "auto"
    has chosen, and why, goes to `say`: by default to standard error.
    """
    _look_at(options.model)
    if (options.speculative in WITH_WEIGHTS) is not (options.draft_model is not None):
        message = f"--draft-model FOLDER and --speculative {', '.join(WITH_WEIGHTS)} go together; add the other one"
        raise LocalError(ExitCode.SettingInvalid, message)
    if options.draft_model is not None:
        _look_at(options.draft_model)
    tree = options.draft_topk > 1 or options.draft_tree_tokens
    if options.speculative is None and (options.draft_tokens or options.drafts_max_batch or tree):
        message = "--draft-tokens, --draft-topk, --draft-tree-tokens and --drafts-max-batch need --speculative"
        raise LocalError(ExitCode.SettingInvalid, f"{message}; add --speculative {'Eagle3' if tree else 'Ngram'}")
    steps = options.draft_tokens or Features().speculative_steps
    if problem := tree_problem(steps, options.draft_topk, options.draft_tree_tokens):
        raise LocalError(ExitCode.SettingInvalid, in_flags(problem, OF_TREES))
    files = options.host_cache_folder, options.host_cache_files
    if any(files) and not (all(files) and options.host_cache):
        message = "--host-cache-folder, --host-cache-files and --host-cache go together; add the missing ones"
        raise LocalError(ExitCode.SettingInvalid, message)
    device = _device(options.device, find_gpus, say)
    features = Features(
        device=device,
        gpus=-(-options.tensor_parallel * options.pipeline_parallel // options.nodes) if device is Device.Cuda else 0,
        nodes=options.nodes,
        tensor=options.tensor_parallel,
        expert=options.expert_parallel,
        pipeline=options.pipeline_parallel,
        max_model_len=options.max_model_len,
        max_batch=options.max_batch,
        quantization=options.quantization,
        kv_cache_dtype=options.kv_cache_dtype,
        speculative=options.speculative,
        speculative_steps=steps,
        speculative_topk=options.draft_topk,
        speculative_draft_tokens=options.draft_tree_tokens,
        speculative_max_batch=options.drafts_max_batch,
        speculative_draft=None if options.draft_model is None else str(options.draft_model.resolve()),
        host_cache_bytes=options.host_cache,
        host_cache_folder=None if options.host_cache_folder is None else str(options.host_cache_folder.resolve()),
        host_cache_file_bytes=options.host_cache_files,
        sleep=options.sleep or options.sleep_after is not None,
        sleep_after_seconds=options.sleep_after,
        reload=options.reload,
    )
    request = GraphRequest(
        prefill=options.prefill,
        decode=options.decode,
        prefill_sizes=options.prefill_sizes,
        decode_sizes=options.decode_sizes,
    )
    if missing := not_built(features, request, pods=False):
        raise LocalError(ExitCode.FeatureNotBuilt, in_flags("; ".join(entry.message for entry in missing)))
    return EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(options.name or options.model.resolve().name, str(options.model.resolve())),
        dtype=None if options.dtype == AUTO else options.dtype,
        prefill_budget=options.prefill_budget,
        serving=serving or ServingConfig(),
    )


def _device(asked: str, find_gpus: Callable[[], Gpus], say: Callable[[str], None]) -> Device:
    """`asked`, or for "auto" a GPU where one can be used. An explicit GPU is not looked for: the engine's start says
    what is wrong with it.
    """
    if asked != AUTO:
        return Device(asked)
    found = find_gpus()
    device = Device.Cuda if found.count else Device.Cpu
    say(f"device auto: {device} ({found.because})")
    return device


def require_no_file(model: Path) -> None:
    """LocalError where a model's path is that of a file."""
    if model.is_file():
        gguf = f"graphpod-engine convert --gguf {model} --out FOLDER makes a folder of it"
        step = gguf if model.suffix == ".gguf" else "give its folder"
        raise LocalError(ExitCode.ModelInvalid, f"{model}: a file; {step}")


def _look_at(model: Path) -> None:
    """LocalError unless the folder has a model's configuration."""
    require_no_file(model)
    path = model / "config.json"
    try:
        if (config := json_object(path)) is not None:
            ModelFacts.of(config)
            return
    except JsonFileInvalid as error:
        raise LocalError(ExitCode.ModelInvalid, str(error)) from error
    except (ValueError, AttributeError) as error:
        raise LocalError(
            ExitCode.ModelInvalid, f"{path}: no model's configuration ({error}); copy the model again"
        ) from error
    missing = "no config.json; give the folder of a" if model.is_dir() else "no such folder; give that of a downloaded,"
    raise LocalError(ExitCode.ModelInvalid, f"{model}: {missing} Hugging Face style model")

"""Engines of the matrix: one subject, one variant, one device."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from graphpod_policy import (
    CompileMode,
    Device,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    OnCaptureFailure,
    Phase,
    Policy,
    SpeculativeMethod,
    resolve,
)
from graphpod_policy.engine_features import DRAFT_HEADS, WITH_WEIGHTS
from graphpod_runtime.engine.capture.debug import DEBUG, FAULT
from graphpod_runtime.engine.ranks.start import runner_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device_state import LoadModel
from truth import models
from truth.axes import Variant
from truth.drafting.near_model import nearly, noisy_in
from truth.drafting.random_head import random_head
from truth.models import Subject
from truth.ranks.processes import starts_of
from truth.ranks.spread import ALONE, Spread

MOST_REQUESTS = 32
CHUNK = 32
"""Tokens of one prefill pass."""
SIZES: dict[Phase, tuple[int, ...]] = {Phase.Prefill: (4, 8, 16, CHUNK), Phase.Decode: (1, 2, 4, 8, 16, MOST_REQUESTS)}
KV_BYTES = 32 << 20
HOST_BYTES = 16 << 20
FILE_BYTES = 256 << 20


class Tree(NamedTuple):
    """A form of drafts, in the words of Features."""

    speculative_topk: int = 2
    speculative_draft_tokens: int = 4


TREE = Tree()
"""Six requests of it fit on the largest size."""


def features_of(
    subject: Subject,
    device: Device,
    drafts: SpeculativeMethod | None = None,
    host_tier: bool = False,
    draft: Path | None = None,
    spread: Spread = ALONE,
    tree: Tree | None = None,
    files: Path | None = None,
) -> Features:
    """What the rules see of an engine over `subject`. `drafts`: the method; `draft`: its folder, where it has one;
    `spread`: the ranks; `tree`: the form of drafts that are no chain; `files`: the folder under its host tier."""
    return Features(
        device=device,
        gpus=spread.ranks if device is Device.Cuda else 0,
        **spread._asdict(),
        max_model_len=models.CONTEXT,
        max_batch=MOST_REQUESTS,
        prefill_chunk=CHUNK,
        kv_cache_dtype=subject.kv_cache_dtype,
        quantization=subject.quantization,
        speculative=drafts,
        speculative_draft=None if draft is None else str(draft),
        speculative_max_batch=MOST_REQUESTS if drafts else None,
        host_cache_bytes=HOST_BYTES if host_tier else None,
        host_cache_folder=None if files is None else str(files),
        host_cache_file_bytes=None if files is None else FILE_BYTES,
        **({} if tree is None else tree._asdict()),
    )


@contextmanager
def switches(faults: str, modes: str) -> Iterator[None]:
    """Starts meet what GRAPHPOD_FAULT=`faults` and GRAPHPOD_DEBUG=`modes` ask for; an empty text leaves the variable as
    the user has it."""
    asked = {name: text for name, text in ((FAULT, faults), (DEBUG, modes)) if text}
    before = {name: os.environ.get(name) for name in asked}
    os.environ |= asked
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text


def start_engine(
    subject: Subject,
    variant: Variant,
    device: Device,
    folder: Path,
    on_failure: OnCaptureFailure = OnCaptureFailure.Fail,
    load: LoadModel = models.load,
    drafts: SpeculativeMethod | None = None,
    host_tier: bool = False,
    spread: Spread = ALONE,
    tree: Tree | None = None,
    files: Path | None = None,
) -> Runner:
    """A Ready runner over what `load` makes of the subject, perhaps with speculative decoding by the method
    `drafts`, as a `tree` if there is one, or with a host tier, which may have the folder `files` under it. Over ranks
    the subject's folder has a checkpoint, which they read instead. StartFailure under Fail for whatever its start
    meets; Degrade walks down."""
    torch.backends.cuda.matmul.allow_tf32 = False
    # Traces of other engines in this process are none of this one's, and torch counts them against its limits.
    torch._dynamo.reset()
    draft = _draft(folder, drafts)
    weights = draft if drafts in WITH_WEIGHTS else None
    features = features_of(subject, device, drafts, host_tier, weights, spread, tree, files)
    sizes = {phase: None if variant.policy(phase) is Policy.Disabled else SIZES[phase] for phase in Phase}
    request = GraphRequest(
        variant.prefill,
        variant.decode,
        prefill_sizes=sizes[Phase.Prefill],
        decode_sizes=sizes[Phase.Decode],
        compile=variant.compile,
        on_capture_failure=on_failure,
    )
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(subject.name, str(folder)),
        dtype=subject.dtype,
        page_size=subject.page_size,
        kv_cache_bytes=KV_BYTES,
    )
    # The rules leave layers uncompiled on a CPU because its image has no compiler; there is one here.
    config = replace(config, graph=replace(config.graph, compile=variant.compile))
    if spread.ranks > 1:
        gc.collect()  # ranks of an engine that is gone have left before these meet
        runner = runner_of(config, lambda report: None, starts_of(config))
    else:
        drawn = noisy_in(draft, load) if draft and drafts is SpeculativeMethod.DraftModel else load
        runner = Runner(config, lambda report: None, load=drawn)
    runner.start()
    return runner


def _draft(folder: Path, method: SpeculativeMethod | None) -> Path | None:
    """The folder of the draft model or head for the subject in `folder`; that itself where a layer of it drafts."""
    if method is SpeculativeMethod.DraftModel:
        return nearly(folder)
    return random_head(folder, method) if method is not None and method in DRAFT_HEADS else None


def compiled(variant: Variant) -> bool:
    """Whether a start of `variant` compiles."""
    return variant.compile is not CompileMode.Nothing

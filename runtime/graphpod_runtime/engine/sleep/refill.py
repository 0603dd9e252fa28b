"""Weights of a folder into a model that has some already, in their places: graphs go on reading them there."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.files.regular_file import read_if_there, read_regular
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.models.checkpoint import tensors
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.kv_scales import KvScales
from graphpod_runtime.models.loader import Stored, fill, matched, stored
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.registry import parameters_by_transformers
from graphpod_runtime.models.weights.fp8 import fp8_weights

CONFIG = "config.json"
OTHER_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""What else of a folder a running engine has read, and does not read again."""
NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version")
"""Fields of config.json that say where weights come from."""
SETTLED_NS = 2_000_000_000
"""A file that was written so shortly before it was read may be written again under the same times: some file systems
count in seconds."""


@dataclass(frozen=True, slots=True)
class Refill:
    """How the weights in `folder` come into `model`, of `dtype`, which a loader has read there at the start."""

    folder: Path
    model: Model
    dtype: torch.dtype
    files: Mapping[str, str]
    """What the other files were at the start, as `files_in` gives it."""
    dtypes: Mapping[str, torch.dtype]
    """Of the tensors that our decoder was read from, by the names of their targets."""
    kept: tuple[tuple[Tensor, Tensor], ...]
    """What is computed, not read, of the model, each with a copy on the host."""
    read: dict[Path, "Stamp"]
    """Of each file of weights that was read last."""

    @classmethod
    def of(cls, folder: Path, model: Model, dtype: torch.dtype, before: "Files") -> "Refill":
        """That of a model which has just been loaded, with what was there before that."""
        read = {id(one) for weight in fp8_weights(model.module()) for one in weight.buffers()}
        computed = (one for one in model.module().buffers() if id(one) not in read)
        kept = tuple((one, one.detach().to("cpu", copy=True)) for one in computed)
        dtypes = {one.name: one.tensor.dtype for one in _stored(folder, model)} if isinstance(model, Decoder) else {}
        return cls(folder, model, dtype, before.others, dtypes, kept, before.weights)

    @property
    def replaced(self) -> bool:
        """Whether the folder has other files of weights than those that were read, none, or one that cannot be read."""
        try:
            there = _weights_in(self.folder)
        except ModelInvalid:
            return True
        return {file: one[:2] for file, one in self.read.items()} != {file: one[:2] for file, one in there.items()}

    @property
    def untouched(self) -> bool:
        """Whether the model's files are those that were read: written, even with the same content, they are others. So
        are those that were written when they were read, or just before.
        """
        try:
            return self.read == _weights_in(self.folder) and self.files == files_in(self.folder)
        except ModelInvalid:
            return False

    def check(self, fp8_cache: bool) -> None:
        """ModelInvalid, and nothing is written, if graphs of `model` cannot run what is in the folder now: another
        model, one that is not whole, or with an `fp8_cache` other scales of it.
        """
        if not isinstance(self.model, Decoder):
            raise ModelInvalid(
                f"{self.folder}: new weights in place are not built for models that transformers computes; {_RESTART}"
            )
        there = files_in(self.folder)
        if other := sorted(name for name in self.files.keys() | there if self.files.get(name) != there.get(name)):
            raise ModelInvalid(f"{self.folder}: {', '.join(other)} changed since the start; {_RESTART}")
        scales, shape = KvScales(self.model.shape.layers), self.model.shape
        targets = decoder_targets(self.model)
        there_now = stored(partial(tensors, self.folder), shape, scales)
        for one, _ in matched(self.folder, shape.architecture, targets, there_now):
            if one.tensor.dtype is not self.dtypes.get(one.name):
                before, now = (_word(dtype) for dtype in (self.dtypes.get(one.name), one.tensor.dtype))
                raise ModelInvalid(f"{one.file}: {one.stored_name} is {now}, and was {before} at the start; {_RESTART}")
        if fp8_cache and scales.by_layer() != self.model.kv_scales:
            raise ModelInvalid(f"{self.folder}: the scales of the KV cache changed, which graphs hold; {_RESTART}")

    def write(self, read: OnProgress = ignore_progress) -> None:
        """All weights of the model, whose memory may hold anything. ModelInvalid leaves some of them written."""
        model, shape = self.model, self.model.shape
        there = Files.of(self.folder).weights
        self.read.clear()
        self.read.update(there)
        for tensor, copy in self.kept:
            tensor.copy_(copy)
        if not isinstance(model, Decoder):
            parameters_by_transformers(self.folder, model, self.dtype, read)
            return
        for weight in fp8_weights(model.module()):
            for one in weight.buffers():
                one.view(torch.uint8).zero_()  # the scale of fused weights is the largest of theirs
        fill(
            self.folder,
            shape.architecture,
            decoder_targets(model),
            stored(partial(tensors, self.folder), shape, KvScales(shape.layers)),
            next(model.module().parameters()).device,
            read,
        )


_RESTART = "restart the pods to serve it"


def files_in(folder: Path) -> dict[str, str]:
    """What describes the model in `folder`, by file: a digest of each."""
    found = {CONFIG: _digest(json.dumps(_of_the_model(folder), sort_keys=True).encode())}
    for name in OTHER_FILES:
        try:
            content = read_if_there(folder / name)
        except OSError as error:
            raise ModelInvalid(f"{folder / name}: {error.strerror}; copy the model again") from error
        if content is not None:
            found[name] = _digest(content)
    return found


class Stamp(NamedTuple):
    """What changes when a file is written."""

    size: int
    written: int
    """Nanoseconds. Whoever copies a file may give it the time of another."""
    changed: int | None
    """Nanoseconds; only the kernel sets it. It changes with the file's name and rights, too. None: too new to tell."""


class Files(NamedTuple):
    """What a folder has, just before it is read: what is written during the reading counts as newer."""

    weights: dict[Path, Stamp]
    others: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> "Files":
        """ModelInvalid where one cannot be read."""
        settled = time.time_ns() - SETTLED_NS
        weights = {
            file: one if one.changed is not None and one.changed < settled else one._replace(changed=None)
            for file, one in _weights_in(folder).items()
        }
        return cls(weights, files_in(folder))


def _weights_in(folder: Path) -> dict[Path, Stamp]:
    try:
        return {file: _stamp(file) for file in folder.glob("*.safetensors") if file.is_file()}
    except OSError as error:
        raise ModelInvalid(f"{error.filename or folder}: {error.strerror}; copy the model again") from error


def _stamp(file: Path) -> Stamp:
    with file.open("rb") as opened:  # NFS asks its server when a file is opened, and else repeats an older answer
        one = os.fstat(opened.fileno())
    return Stamp(one.st_size, one.st_mtime_ns, one.st_ctime_ns)


def _stored(folder: Path, model: Decoder) -> Iterator[Stored]:
    return stored(partial(tensors, folder), model.shape, KvScales(model.shape.layers))


def _word(dtype: torch.dtype | None) -> str:
    return "absent" if dtype is None else str(dtype).removeprefix("torch.")


def _of_the_model(folder: Path) -> Any:
    try:
        said = json.loads(read_regular(folder / CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelInvalid(f"{folder / CONFIG}: {error}; copy the model again") from error
    if isinstance(said, dict):
        return {name: value for name, value in said.items() if name not in NOT_OF_THE_MODEL}
    return said


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

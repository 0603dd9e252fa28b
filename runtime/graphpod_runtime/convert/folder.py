"""The target folder: written next to its final place, then renamed, so it is whole or absent."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from graphpod_policy.model.shown import cut
from graphpod_runtime.convert.llama import Shape
from graphpod_runtime.convert.problem import ConvertError
from graphpod_runtime.convert.source import AGAIN, Source
from graphpod_runtime.convert.tokenizer import special_ids, tokenizer_config, tokenizer_json


class Dtype(StrEnum):
    """Number format of the written weights; the values are torch's words."""

    Bfloat16 = "bfloat16"
    Float32 = "float32"


TORCH = {Dtype.Bfloat16: torch.bfloat16, Dtype.Float32: torch.float32}


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written: number of tensors, of weights, and bytes of model.safetensors."""

    folder: Path
    tensors: int
    weights: int
    size: int


def convert(gguf: Path, out: Path, dtype: Dtype = Dtype.Bfloat16) -> Converted:
    """Write the folder `out` from the file `gguf`.

    `out` must be absent or an empty folder. Raises ConvertError and leaves nothing behind when the file cannot be
    converted or the folder cannot be written.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConvertError(f"{out}: exists and is not an empty folder; name another --out or remove it first")
    source = Source(gguf)
    shape = Shape.of(source)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    except OSError as error:
        raise ConvertError(f"{out.parent}: cannot be written: {error.strerror}; name another --out") from error
    try:
        converted = _write(source, shape, partial, dtype)
        # mkdtemp and safetensors make private files; a pod of another user reads them later.
        for file in partial.iterdir():
            file.chmod(0o644)
        partial.chmod(0o755)
        partial.rename(out)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # What it is made from is the file's own: lengths, kinds and numbers that contradict each other.
        what = f"{type(error).__name__}: {cut(str(error))}"
        raise ConvertError(f"{gguf}: its metadata and tensors describe no Llama ({what}); {AGAIN}") from error
    except OSError as error:
        raise ConvertError(f"{out}: cannot be written: {error}; free some space or name another --out") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Converted(out, *converted)


def _write(source: Source, shape: Shape, folder: Path, dtype: Dtype) -> tuple[int, int, int]:
    # Small files first: a tokenizer we cannot convert is found before the slow part.
    special = special_ids(source)
    ids = {f"{word}_token_id": special[word] for word in ("bos", "eos", "pad") if word in special}
    (folder / "tokenizer.json").write_text(tokenizer_json(source), encoding="utf-8")
    _json(folder / "tokenizer_config.json", tokenizer_config(source, shape.context))
    _json(folder / "config.json", shape.config(dtype, ids))
    _json(folder / "generation_config.json", {"_from_model_config": True, **ids})
    # from_numpy shares memory and contiguous() copies only what un-permuting left strided.
    tensors = {name: torch.from_numpy(weight).to(TORCH[dtype]).contiguous() for name, weight in shape.tensors(source)}
    weights = folder / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    return len(tensors), sum(tensor.numel() for tensor in tensors.values()), weights.stat().st_size


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

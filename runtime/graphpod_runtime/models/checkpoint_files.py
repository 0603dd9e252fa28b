"""Which files of a folder hold a checkpoint's weights. Needs no torch: they are read ahead before it is imported."""

import json
from pathlib import Path

from graphpod_runtime.base.errors import ModelInvalid


def files_of(folder: Path) -> list[Path]:
    """Those that the index lists, else every *.safetensors, in the order in which they are read. ModelInvalid when one
    is missing."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelInvalid(f"{index}: not a safetensors index ({error}); copy it again") from error
        files = [folder / name for name in names]
        for file in files:
            if not file.is_file():
                raise ModelInvalid(f"{file}: is missing, though {index.name} lists it; copy the model again")
        return files
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelInvalid(
            f"{folder}: no *.safetensors file (found {found}); convert the weights or copy the whole folder"
        )
    return files

"""Which files of a folder hold a checkpoint's weights. Needs no torch: they are read ahead before it is imported."""

from pathlib import Path, PurePosixPath
from typing import Any

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.base.files.regular_file import check_regular


def files_of(folder: Path) -> list[Path]:
    """Those that the index lists, else every *.safetensors, in the order in which they are read. ModelInvalid when one
    is missing, or is no file."""
    index = folder / "model.safetensors.index.json"
    if (names := _indexed(index)) is not None:
        files = [folder / name for name in names]
        for file in files:
            _check(file, f"is missing, though {index.name} lists it")
        return files
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        _check(file, "is a link to a file that is not there")
    if not files:
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelInvalid(
            f"{folder}: no *.safetensors file (found {found}); convert the weights or copy the whole folder"
        )
    return files


def _indexed(index: Path) -> list[str] | None:
    """The files that an index names, in order; None where there is no index."""
    try:
        content = json_object(index)
    except JsonFileInvalid as error:
        raise ModelInvalid(str(error)) from error
    if content is None:
        return None
    places = content.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelInvalid(f"{index}: not a safetensors index (weight_map has no tensors); copy it again")
    for name in places.values():
        if not _is_below(name):
            raise ModelInvalid(f"{index}: {name!r} is no *.safetensors file of its folder; copy it again")
    return sorted(set(places.values()))


def _check(file: Path, missing: str) -> None:
    """ModelInvalid for what is no file, in the words of `missing` where nothing is there."""
    try:
        check_regular(file)
    except FileNotFoundError as error:
        raise ModelInvalid(f"{file}: {missing}; copy the model again") from error
    except OSError as error:
        raise ModelInvalid(f"{file}: cannot be read: {error.strerror}; copy the model again") from error


def _is_below(name: Any) -> bool:
    """Whether it is the name of a file of weights in the folder, or in one below it."""
    if not isinstance(name, str) or not name.endswith(".safetensors") or not name.isprintable():
        return False
    return not name.startswith("/") and ".." not in PurePosixPath(name).parts

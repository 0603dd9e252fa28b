"""How a model's makers want its tokens drawn: generation_config.json, for requests that do not say."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpod_policy import SamplingSource
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object

FILE = "generation_config.json"


BOUNDS = {
    "temperature": (0, 2),
    "top_p": (1e-9, 1),
    "top_k": (-1, 2**31 - 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
}


class DefaultsInvalid(Exception):
    """generation_config.json cannot be read, or a value is invalid; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """OpenAI's, unless the model's makers say otherwise. `top_k` 0 cuts nothing."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def read(cls, folder: Path, source: SamplingSource = SamplingSource.Model) -> "SamplingDefaults":
        """Those of a model folder, or OpenAI's, for which no file is read. DefaultsInvalid for a file that cannot be
        read, and for a value that a request could not have either.
        """
        if source is SamplingSource.OpenAI:
            return cls()
        path = folder / FILE
        try:
            found = json_object(path) or {}
        except JsonFileInvalid as error:
            raise DefaultsInvalid(str(error)) from error
        given = {name: found[name] for name in cls.__slots__ if found.get(name) is not None}
        for name, value in given.items():
            if not _fits(name, value):
                raise DefaultsInvalid(f"{path}: {name} is {shown(value)}; correct it or take it out")
        return cls(**given | {"top_k": max(0, given.get("top_k", 0))})


def _fits(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
        return False
    least, most = BOUNDS[name]
    return bool(least <= value <= most)

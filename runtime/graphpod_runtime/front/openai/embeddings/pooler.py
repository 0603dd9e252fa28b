"""How a model folder says that its embeddings are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpod_policy.model.shown import cut, shown
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_list, json_object
from graphpod_runtime.wire.messages import Pooling

MODULES, POOLING, MODEL = "modules.json", "1_Pooling/config.json", "config.json"
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
MODES = {"lasttoken": Pooling.Last, "mean_tokens": Pooling.Mean, "mean": Pooling.Mean}
"""By sentence-transformers' names."""
MOST_NUMBERS = 1 << 20
"""Of a vector: more than any model gives."""


@dataclass(frozen=True, slots=True)
class Pooler:
    """`pooling` of the hidden states; `refused` says why the folder's own way is not built. `dimensions`: prefixes of a
    vector that are vectors themselves (Matryoshka): every length, some, or none but the whole.
    """

    pooling: Pooling = Pooling.Last
    refused: str = ""
    every_dimension: bool = False
    dimensions: tuple[int, ...] = ()
    size: int | None = None
    """Numbers of a whole vector, as config.json has it."""

    @classmethod
    def read(cls, folder: Path) -> "Pooler":
        """From sentence-transformers' files, where the folder has them; without them the last token's state is taken. A
        file that cannot be read is a reason to refuse embeddings, not to refuse the model.
        """
        try:
            modules = json_list(folder / MODULES) or []
            config = json_object(folder / POOLING)
            model = json_object(folder / MODEL) or {}
        except JsonFileInvalid as error:
            return cls(refused=str(error))
        names = [str(module.get("type", "")).rpartition(".")[2] for module in modules if isinstance(module, dict)]
        if unknown := [name for name in names if name not in KNOWN_MODULES]:
            return cls(refused=f"{folder / MODULES}: a module of type {shown(unknown[0])} is not built; {_BUILT}")
        listed = model.get("matryoshka_dimensions")
        dimensions = tuple(filter(_is_width, listed)) if isinstance(listed, list) else ()
        text = model.get("text_config")
        size = (text if isinstance(text, dict) else model).get("hidden_size")
        size = size if _is_width(size) else None
        every = model.get("is_matryoshka") is True and not dimensions
        if config is None:
            return cls(every_dimension=every, dimensions=dimensions, size=size)
        modes = _modes(config)
        if len(modes) != 1 or modes[0] not in MODES:
            said = cut(" and ".join(modes)) or "none"
            return cls(refused=f"{folder / POOLING}: pooling by {said} is not built; {_BUILT}")
        return cls(MODES[modes[0]], "", every, dimensions, size)


def _is_width(value: object) -> bool:
    """Whether a vector can have so many numbers."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_NUMBERS


_BUILT = "the last token's state and the mean of all are"


def _modes(config: Mapping[str, Any]) -> list[str]:
    """The modes that are on: a list of flags, or in newer folders one name."""
    if isinstance(named := config.get("pooling_mode"), str):
        return [named]
    prefix = "pooling_mode_"
    return [name.removeprefix(prefix) for name, on in config.items() if name.startswith(prefix) and on is True]

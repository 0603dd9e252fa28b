"""What a run of a suite needs to know, handed to its process in its environment."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "GRAPHPOD_PEERS"


@dataclass(frozen=True, slots=True)
class Settings:
    """`weights`: the model's folder; `folder`: scratch space; `cap`: most tokens of an answer, None for no cap;
    `engine`: more words for the engine's command line.
    """

    weights: str
    folder: str
    cap: int | None
    engine: tuple[str, ...] = ()

    @classmethod
    def of_environment(cls) -> "Settings":
        """Those that `as_environment` wrote."""
        values = json.loads(os.environ[VARIABLE])
        return cls(values["weights"], values["folder"], values["cap"], tuple(values["engine"]))

    def as_environment(self) -> dict[str, str]:
        """For the process of a suite."""
        return {VARIABLE: json.dumps(asdict(self), default=str)}

    @property
    def tokenizer(self) -> Path:
        """The folder of the model's tokenizer."""
        return Path(self.weights)

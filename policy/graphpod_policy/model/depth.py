"""How many layers a config.json declares: bounded, since its author wrote it and much is computed for each layer."""

from collections.abc import Mapping
from typing import Any

LAYERS = "num_hidden_layers"
"""The field that counts them."""
MOST_LAYERS = 4096
"""More than any model has."""


def depth_of(config: Mapping[str, Any]) -> int:
    """The layers of `config`. KeyError, TypeError or ValueError where it names no number that a model can have."""
    layers = int(config[LAYERS])
    if not 0 < layers <= MOST_LAYERS:
        raise ValueError(f"{LAYERS} {layers}; a model has 1 to {MOST_LAYERS}")
    return layers

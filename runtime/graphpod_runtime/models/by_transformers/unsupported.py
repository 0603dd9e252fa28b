"""What a model of transformers does that this engine cannot compute, by name."""

from enum import StrEnum

from graphpod_runtime.base.errors import ModelUnsupported


class Lack(StrEnum):
    """Why a model is refused; the table of families has these words."""

    Config = "Config"
    """transformers itself does not build the model of this config.json."""
    NoAttention = "NoAttention"
    """No layer calls attention through transformers' interface."""
    Attention = "Attention"
    """A layer calls it with arguments that our attention does not compute."""
    Mask = "Mask"
    """A layer attends by another mask than causal, within a window or not."""
    Head = "Head"
    """Its head cannot be called apart from its layers."""
    Code = "Code"
    """Its code fails on a line of rows."""
    RowsMixed = "RowsMixed"
    """Tokens see each other outside of attention: a state of a sequence that attention's cache does not hold."""
    Positions = "Positions"
    """It does not take its positions from the engine."""
    Differs = "Differs"
    """Its logits by this engine's attention are not those of its own."""


class FamilyUnsupported(ModelUnsupported):
    """A model that is refused. The message says what of it, where, and is whole without the reason."""

    def __init__(self, lack: Lack, message: str) -> None:
        super().__init__(message)
        self.lack = lack

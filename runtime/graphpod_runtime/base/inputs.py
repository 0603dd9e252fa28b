"""What one forward pass reads: its rows, and where their sequences live in the KV cache."""

from dataclasses import dataclass, field

from torch import Tensor

from graphpod_policy import Phase


@dataclass(frozen=True, slots=True)
class Inputs:
    """One pass over `count` real rows. All int64. Tokens, positions and slots are on the pass's device. Tables, lengths
    and starts are on the host, those of a decode step perhaps on the device; attention copies what its kernels read."""

    phase: Phase
    tokens: Tensor
    """[count]"""
    positions: Tensor
    """[count]"""
    slots: Tensor
    """[count]: page · page_size + offset of each row's key and value."""
    tables: Tensor
    """[sequences, pages]: the pages of each sequence in order."""
    lengths: Tensor
    """[sequences]: tokens each sequence can attend to, this pass included."""
    starts: Tensor
    """[sequences + 1]: sequence i owns rows starts[i] to starts[i + 1]; they are its last tokens."""
    yields: tuple[int, ...]
    """For each sequence the row that yields its next token; -1: none, its prompt goes on."""
    input_logprobs: bool = False
    """Whether the rows of prompt tokens are wanted, too."""
    in_place: bool = False
    """Whether the rows lie in the static buffers of decode steps, padding included."""
    hidden: Tensor | None = None
    """[count]: bit n of a row hides the n-th token in front of its own from it; None: it sees all of them."""

    count: int = field(init=False)
    """Real rows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", self.tokens.shape[0])

    @property
    def one_row_each(self) -> bool:
        """Whether every sequence has one row, as in decode."""
        return self.lengths.shape[0] == self.count

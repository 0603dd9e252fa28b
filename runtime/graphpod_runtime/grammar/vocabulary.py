"""The tokens of a model, as grammars see them."""

from collections.abc import Sequence
from pathlib import Path

from llguidance import LLTokenizer

from graphpod_runtime.base.files.regular_file import read_regular
from graphpod_runtime.grammar.bounds import GrammarInvalid


class GrammarsUnavailable(GrammarInvalid):
    """No grammar can be used with this model's tokenizer; the message says why."""


def read_vocabulary(folder: Path, size: int | None = None, end_ids: Sequence[int] = ()) -> LLTokenizer:
    """That of the tokenizer.json in `folder`. `size`: token ids of the model, which may be more than the tokenizer has;
    `end_ids`: those that end an answer. It takes 0.2 s to 0.7 s, in which no other thread of Python runs.
    GrammarsUnavailable for a tokenizer whose tokens have no bytes.
    """
    path = folder / "tokenizer.json"
    try:
        return LLTokenizer(read_regular(path).decode(), n_vocab=size, eos_token=list(end_ids) or None)
    except (OSError, ValueError) as error:
        raise GrammarsUnavailable(f"llguidance does not know the tokenizer {path}: {error}") from error

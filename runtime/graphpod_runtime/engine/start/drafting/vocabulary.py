"""Whether two models have one vocabulary: the same text for each token. A draft is a token's number, so a model whose
numbers mean other texts is wrong nearly always, however alike the sizes are.
"""

import json
from pathlib import Path
from typing import Any

from graphpod_policy import ExitCode
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files.regular_file import read_regular

TOKENIZER = "tokenizer.json"


def first_difference(target: Path, draft: Path) -> str | None:
    """The first token that has another text in the folder `draft`. None if there is none, or where a folder has no
    tokenizer.json. StartFailure for one that is broken."""
    if not all((folder / TOKENIZER).exists() for folder in (target, draft)):
        return None
    ours, others = vocabulary(target / TOKENIZER), vocabulary(draft / TOKENIZER)
    differing = (id for id in ours.keys() | others.keys() if ours.get(id) != others.get(id))
    first = min(differing, default=None)
    if first is None:
        return None
    here, there = (shown(one[first]) if first in one else "none" for one in (ours, others))
    return (
        f"token {first} is {there} in the vocabulary of {draft.name}, and {here} in that of {target.name}; "
        "use a draft model with the same tokenizer"
    )


def vocabulary(path: Path) -> dict[int, str]:
    """The text of each token of a tokenizer.json, those that were added to its model's included."""
    try:
        made: dict[str, Any] = json.loads(read_regular(path))
        vocab = made["model"]["vocab"]
        # Unigram has a list of texts and scores, the others have numbers by text.
        texts = {id: text for id, (text, *_) in enumerate(vocab)} if isinstance(vocab, list) else None
        texts = {id: text for text, id in vocab.items()} if texts is None else texts
        texts |= {one["id"]: one["content"] for one in made.get("added_tokens") or ()}
        if other := next((pair for pair in texts.items() if tuple(map(type, pair)) != (int, str)), None):
            raise TypeError(f"{shown(other)} is no token")
        return texts
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StartFailure(ExitCode.ModelInvalid, f"{path}: no vocabulary can be read: {error!r}") from error

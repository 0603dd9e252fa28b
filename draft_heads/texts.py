"""What a head is trained on: answers of the model itself, and the documentation of this repository and of Python."""

import inspect
import json
import pkgutil
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics

from graphpod_policy import Policy
from graphpod_runtime import Engine, SamplingOptions

ROOT = Path(__file__).parents[1]
ASKED = (
    "Explain {} in simple words.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "What are the advantages and disadvantages of {}?",
    "Give step-by-step instructions for a beginner about {}.",
    "Write a Python function that has to do with {}, and explain it.",
    "Summarize the history of {} in one paragraph.",
    "Write an email to a friend about {}.",
)
TOPICS = tuple((ROOT / "draft_heads" / "topics.txt").read_text().splitlines())
HELD_OUT = tuple((ROOT / "draft_heads" / "held_out.txt").read_text().splitlines())
"""Topics that no head is trained on: acceptance is measured with them."""
ANSWER_TOKENS = 256
LENGTH = 384
"""Tokens of a row that is trained on."""
PIECE = 1400
"""Characters of a document in a row: LENGTH tokens or fewer, mostly."""
AT_ONCE = {"cpu": 64, "cuda": 256}
"""Answers that are written together."""
TEMPERATURES = (0.3, 0.8)
"""Drawn for each round: a greedy answer would be the same whenever its question comes again."""


def asked(subjects: tuple[str, ...]) -> list[str]:
    """Questions of every kind about each."""
    return [question.format(one) for one in subjects for question in ASKED]


def documents() -> Iterator[str]:
    """Texts by people."""
    yield from topics.values()
    for file in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))):
        yield file.read_text(encoding="utf-8")
    for module in sorted(one.name for one in pkgutil.iter_modules() if one.name in sys.stdlib_module_names):
        if module not in ("antigravity", "this", "idlelib", "turtledemo") and not module.startswith("_"):
            try:
                yield inspect.getsource(import_module(module))
            except (ImportError, OSError, TypeError):  # written in C, or of another system
                continue


def tokens(model: Path, device: str, folder: Path, wanted: int, say: Callable[[str], None]) -> list[list[int]]:
    """About so many `wanted` tokens, two thirds of them answers of `model`, in rows of up to LENGTH. They are kept in
    `folder`, where a later call goes on."""
    kept = folder / "texts.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if sum(map(len, rows)) >= wanted:
        return rows
    # A CPU would take longer to capture graphs than they save.
    policy = Policy.Disabled if device == "cpu" else Policy.Auto
    plain = {"prefill": policy, "decode": policy}
    together = AT_ONCE[device]
    with (
        Engine(model, device=device, max_model_len=2 * LENGTH, max_batch=together, **plain) as engine,
        kept.open("a") as out,
    ):

        def keep(more: list[list[int]]) -> int:
            rows.extend(more)
            out.writelines(f"{json.dumps(row)}\n" for row in more)
            out.flush()
            return sum(map(len, rows))

        have = sum(map(len, rows)) or keep(_of_documents(engine, wanted // 3))
        while have < wanted:
            say(f"texts: {have} of {wanted} tokens")
            have = keep(_answers(engine, together, len(rows)))
    return rows


def _of_documents(engine: Engine, wanted: int) -> list[list[int]]:
    rows: list[list[int]] = []
    pieces = [text[at : at + PIECE] for text in documents() for at in range(0, len(text), PIECE)]
    random.Random(0).shuffle(pieces)
    for piece in pieces:
        rows.append(engine.tokenize(piece)[:LENGTH])
        if (wanted := wanted - len(rows[-1])) <= 0:
            break
    return rows


def _answers(engine: Engine, count: int, seed: int) -> list[list[int]]:
    """To `count` questions; `seed` draws them, and the answers."""
    questions = random.Random(seed).sample(asked(TOPICS), count)
    options = SamplingOptions(max_tokens=ANSWER_TOKENS, temperature=random.Random(seed).choice(TEMPERATURES), seed=seed)
    found = engine.chat([[{"role": "user", "content": one}] for one in questions], options)
    return [[*one.prompt_token_ids, *one.token_ids][:LENGTH] for one in found]

"""Which files of a source are downloaded: weights as safetensors, configuration, tokenizer and templates."""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from graphpod_policy.model.config_json import ConfigJson
from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason

WEIGHTS = ".safetensors"
GGUF = ".gguf"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".npz", ".joblib")
"""Ends of files that run code when they are loaded, or are another framework's."""
CODE = (".py", ".pyc", ".pyx", ".so", ".sh", ".ipynb", ".dll", ".exe")
"""Ends of files that are never downloaded, whatever --include says."""
TEXTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.jsonl")
LEFT_OUT = ("*.bin.index.json", "*.h5.index.json", "README*", "LICENSE*", "requirements*.txt")
VARIANTS = ("*.fp16.safetensors", "*.fp32.safetensors", "*.bf16.safetensors", "*.non_ema.safetensors")
LARGEST_TEXT = 512 << 20  # bytes
CONFIG = "config.json"
LARGEST_CONFIG = 4 << 20  # bytes
INDEX = "model.safetensors.index.json"


def wanted(path: str) -> bool:
    """Whether a file of that name may be part of a model that the engine reads."""
    name = PurePosixPath(path).name
    if name.lower().endswith((*PICKLED, *CODE)):
        return False
    return is_weights(name) or _text(name)


def is_weights(path: str) -> bool:
    """Whether a file has weights, and is fetched after the texts."""
    return path.endswith((WEIGHTS, GGUF))


def selected(names: Sequence[str], include: Sequence[str], where: str) -> list[str]:
    """Names to download, small files first. Raises `Problem`: NoWeights or PickledWeights.

    `include` replaces the patterns below, but for pickled weights and code. Without it: weights at the top, once
    where they are published twice; texts at the top and in folders.
    """
    loadable = [name for name in names if not name.lower().endswith((*PICKLED, *CODE))]
    if include:
        found = [n for n in loadable if any(fnmatchcase(n, glob) or fnmatchcase(_last(n), glob) for glob in include)]
    else:
        found = [n for n in loadable if _text(_last(n))] + _weights([n for n in loadable if "/" not in n])
    if not any(is_weights(name) for name in found):
        raise _no_weights(names, include, where)
    if not any(name.endswith(WEIGHTS) for name in found):
        ggufs = [name for name in found if name.endswith(GGUF)]
        if len(ggufs) > 1:
            listed = ", ".join(shown(name) for name in ggufs[:8])
            raise Problem(
                Reason.NoWeights,
                f"{where}: has no safetensors and {len(ggufs)} GGUF files ({listed})",
                next_step="name one of them in spec.model.uri: hf://ORG/NAME@REVISION/FILE.gguf",
            )
    elif not include:
        found = [name for name in found if not name.endswith(GGUF)]
    return sorted(set(found), key=lambda name: (is_weights(name), name))


def _weights(names: Sequence[str]) -> list[str]:
    """Weights, once where a repository publishes them in two layouts or in several precisions."""
    found = [name for name in names if is_weights(name)]
    plain = [n for n in found if not any(fnmatchcase(n, glob) for glob in VARIANTS)]
    found = plain or found
    # Mistral publishes its own layout next to the one that transformers reads.
    model = [n for n in found if not n.startswith("consolidated")]
    return model if any(n.endswith(WEIGHTS) for n in model) else found


def _text(name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in TEXTS) and not any(fnmatchcase(name, glob) for glob in LEFT_OUT)


def _last(path: str) -> str:
    return PurePosixPath(path).name


def _no_weights(names: Iterable[str], include: Sequence[str], where: str) -> Problem:
    names = list(names)
    pickled = [name for name in names if name.lower().endswith(PICKLED)]
    if pickled and not any(name.endswith(WEIGHTS) for name in names):
        listed = ", ".join(shown(name) for name in pickled[:3])
        return Problem(
            Reason.PickledWeights, f"{where}: has weights only as {listed}, which run code when they are loaded"
        )
    if include:
        return Problem(
            Reason.NoWeights,
            f"{where}: none of its {len(names)} files is a *.safetensors that matches {', '.join(include)}",
            next_step="correct the name of the file in spec.model.uri, or --include",
        )
    below = sorted({name.rpartition("/")[0] for name in names if name.endswith(WEIGHTS)})
    if below:
        return Problem(
            Reason.NoWeights,
            f"{where}: has *.safetensors only in folders ({', '.join(shown(name) for name in below[:5])})",
            next_step="add the folder to spec.model.uri",
        )
    return Problem(Reason.NoWeights, f"{where}: none of its {len(names)} files is a *.safetensors")


def check_config(content: bytes, where: str) -> None:
    """Raise `Problem` for a config.json that names code of the repository, or that is none (NoWeights)."""
    try:
        whole = json.loads(content)
        config = ConfigJson.of(whole)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Problem(Reason.NoWeights, f"{where}: its config.json describes no model ({error})") from error
    if config.code:
        raise Problem(
            Reason.CodeInRepository,
            f"{where}: auto_map in config.json names Python code of the repository for "
            f"{shown(config.architecture)}, which graphpod never downloads or runs",
        )


def check_sizes(sizes: Iterable[tuple[str, int | None]], where: str) -> None:
    """Raise `Problem` (BadArchive) for a text that is as large as weights."""
    for name, count in sizes:
        if count is not None and not is_weights(name) and count > LARGEST_TEXT:
            raise Problem(
                Reason.BadArchive, f"{where}: {shown(name)} has {size(count)}, more than a text of a model can have"
            )


def check_index(content: bytes, names: Iterable[str], where: str) -> None:
    """Raise `Problem` (NoWeights) when the index of the weights names files that are not there."""
    try:
        files = {str(name) for name in json.loads(content)["weight_map"].values()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Problem(Reason.NoWeights, f"{where}: {INDEX} is no index of weights ({error})") from error
    if lacking := sorted(files - set(names)):
        listed = ", ".join(shown(name) for name in lacking[:3])
        raise Problem(
            Reason.NoWeights,
            f"{where}: {INDEX} names {len(lacking)} files that are not there ({listed})",
            next_step="wait until the upload is complete, or use another revision",
        )

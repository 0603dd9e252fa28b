"""The JSON files of a model's folder, as front and engine read them."""

import json
from pathlib import Path
from typing import Any

from graphpod_runtime.base.files.regular_file import read_if_there


class JsonFileInvalid(ValueError):
    """A file that is there and cannot be used; the message has its path, the reason and what to do."""


def json_object(path: Path) -> dict[str, Any] | None:
    """The object in the file; None where there is no such file. JsonFileInvalid for a file that cannot be read (a
    folder, a named pipe, a link to nothing, one of another user's) or holds something else.
    """
    content = _content(path)
    if content is not None and not isinstance(content, dict):
        raise JsonFileInvalid(f"{path} holds no JSON object; copy it again from the model's source")
    return content


def json_list(path: Path) -> list[Any] | None:
    """The list in the file; otherwise as `json_object`."""
    content = _content(path)
    if content is not None and not isinstance(content, list):
        raise JsonFileInvalid(f"{path} holds no JSON list; copy it again from the model's source")
    return content


def _content(path: Path) -> Any:
    """What a JSON file holds; None where there is no such file."""
    try:
        held = read_if_there(path)
        if held is None:
            return None
        content = json.loads(held)
    except OSError as error:
        words = error.strerror or str(error)
        raise JsonFileInvalid(f"{path} cannot be read: {words}; copy it again from the model's source") from error
    except RecursionError as error:
        raise JsonFileInvalid(f"{path} is nested too deeply; copy it again from the model's source") from error
    except ValueError as error:
        raise JsonFileInvalid(f"{path} is not JSON: {error}; copy it again from the model's source") from error
    return "null" if content is None else content  # neither an object nor a list

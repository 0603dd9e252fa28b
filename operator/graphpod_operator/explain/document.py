"""A YAML or JSON text as the API server would get it: plain values, with the line of each.

Read as kubectl reads it, which turns YAML into JSON: `1e9` and `8.0` are whole numbers, a date is text, keys are text.
How large and how deep a text may be is bounded, and what is read does not grow by its aliases. Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.resolver import Resolver

MOST_BYTES = 16 * 1024 * 1024
"""Of one text. A thousand services with their status have about 10 MiB."""
MOST_LEVELS = 128
"""Of one document, as of an object that the operator reads."""
SHOWN = 80
"""Characters of a value that a message repeats."""

Path = tuple[str | int, ...]

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_RESOLVER: Any = Resolver()
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
"""As JSON has it: YAML 1.1, which PyYAML reads, takes 1e9 for text."""
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORDS = {"null": None, "true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_TAG = "tag:yaml.org,2002:"
_MERGE = "\0<<"
"""The key that takes over another map's keys, and no other one: no text has a zero character."""


class NotYaml(ValueError):
    """A text that cannot be read; `line` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


@dataclass(frozen=True, slots=True)
class Document:
    """One document. `lines` has the line of each key and item by its path; `repeated` the keys that a map has again,
    with the line of the one before.
    """

    value: Any
    lines: Mapping[Path, int]
    repeated: tuple[tuple[Path, int], ...]

    def line(self, path: Path) -> int:
        """Line of the deepest part of `path` that the document has."""
        return next(self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines)


def decoded(data: bytes) -> str:
    """The text of a file. Raises NotYaml for one that is too large or no text."""
    if len(data) > MOST_BYTES:
        raise NotYaml(1, f"the file is larger than {MOST_BYTES >> 20}Mi; explain fewer services at a time")
    codec = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"  # PowerShell writes the former
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        raise _no_text(data.count(b"\n", 0, error.start) + 1, f"byte {data[error.start]:#04x}") from error


def documents(text: str) -> Iterator[Document]:
    """The documents of a text; one without anything has the value None. Raises NotYaml."""
    if (bad := _UNREADABLE.search(text)) is not None:
        raise _no_text(text.count("\n", 0, bad.start()) + 1, f"character {ord(bad[0]):#04x}")
    try:
        reading: _Reading | None = None
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                reading = _Reading(_line(event))
            elif isinstance(event, yaml.DocumentEndEvent) and reading is not None:
                yield Document(reading.value, reading.lines, tuple(reading.repeated))
            elif reading is not None:
                reading.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotYaml(mark.line + 1 if mark else 1, f"not YAML: {what}") from error


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _no_text(line: int, what: str) -> NotYaml:
    return NotYaml(line, f"the file is not text: {what}; use a YAML or JSON file in UTF-8")


@dataclass(slots=True)
class _Level:
    """A map or list that is being read. `key`: of a map, the one whose value comes next."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    key: str | None = None
    merged: list[dict[str, Any]] = field(default_factory=list)


class _Reading:
    """One document in progress, event by event: without recursion, whatever the depth."""

    def __init__(self, line: int) -> None:
        self.value: Any = None
        self.lines: dict[Path, int] = {(): line}
        self.repeated: list[tuple[Path, int]] = []
        self._levels: list[_Level] = []
        self._anchors: dict[str, Any] = {}

    def take(self, event: Any) -> None:
        """The next event. Raises NotYaml."""
        line = _line(event)
        match event:
            case yaml.ScalarEvent():
                if self._wants_key:
                    self._key(event, line)
                else:
                    value = _scalar(event, line)
                    self._remember(event.anchor, value)
                    self._add(value, line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise NotYaml(line, f"alias *{event.anchor} has no anchor &{event.anchor} before it")
                if self._wants_key:
                    raise _no_key(line)
                self._add(self._anchors[event.anchor], line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if self._wants_key:
                    raise _no_key(line)
                if len(self._levels) >= MOST_LEVELS:
                    raise NotYaml(line, f"nested more than {MOST_LEVELS} levels deep; an InferenceService has about 20")
                made: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
                self._levels.append(_Level(made, self._place(line), event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._levels.pop()
                if isinstance(done.value, dict):
                    done.value.update({k: v for one in done.merged for k, v in one.items() if k not in done.value})
                self._remember(done.anchor, done.value)
                self._add(done.value, None)

    @property
    def _wants_key(self) -> bool:
        return bool(self._levels) and isinstance(self._levels[-1].value, dict) and self._levels[-1].key is None

    def _key(self, event: yaml.ScalarEvent, line: int) -> None:
        level = self._levels[-1]
        self._remember(event.anchor, event.value)
        if event.value == "<<" and event.implicit[0]:
            level.key = _MERGE
            return
        level.key = str(event.value)
        path = (*level.path, level.key)
        if isinstance(level.value, dict) and level.key in level.value:
            self.repeated.append((path, self.lines[path]))
        self.lines[path] = line

    def _place(self, line: int) -> Path:
        """Path of the value that comes next."""
        if not self._levels:
            return ()
        level = self._levels[-1]
        path = (*level.path, level.key if level.key is not None else len(level.value))
        self.lines.setdefault(path, line)
        return path

    def _add(self, value: Any, line: int | None) -> None:
        """`line` None: the value has its place already."""
        if line is not None:
            self._place(line)
        if not self._levels:
            self.value = value
            return
        level = self._levels[-1]
        if isinstance(level.value, list):
            level.value.append(value)
        elif level.key == _MERGE:
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(one, dict) for one in several):
                raise NotYaml(self.lines[(*level.path, _MERGE)], "<< merges a map or a list of maps, and nothing else")
            level.merged += several
        elif level.key is not None:
            level.value[level.key] = value
        level.key = None

    def _remember(self, anchor: str | None, value: Any) -> None:
        if anchor is not None:
            self._anchors[anchor] = value


def _no_key(line: int) -> NotYaml:
    return NotYaml(line, "not YAML: a key must be text, not a list, a map or an alias")


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    """A plain value, as JSON has it."""
    text: str = event.value
    tag: str = event.tag or ""
    if not event.implicit[0] and not tag:
        return text  # quoted
    if tag and tag != "!":
        kind = tag.removeprefix(_TAG)
    elif _NUMBER.fullmatch(text):
        kind = "number"
    else:
        kind = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).removeprefix(_TAG)
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return _WORDS[text.lower()]
            case "int" if ":" not in text:
                return _integer(text)
            case "number" | "float" if ":" not in text:
                return _number(json.loads(text) if kind == "number" else float(text.replace("_", "")))
            case "str" | "timestamp" | "int" | "float" | "merge" | "value" | "!":
                return text  # 2026-01-01 and 12:30, too
            case _:
                raise NotYaml(line, f"tag {tag}: JSON has no such value; remove the tag")
    except (ValueError, KeyError, OverflowError) as error:
        if isinstance(error, NotYaml):
            raise
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        large = isinstance(error, OverflowError) or _NUMBER.fullmatch(text)
        problem = "is too large for a number" if large else "is not a number in JSON"
        raise NotYaml(line, f"{shown} {problem}") from error


def _integer(text: str) -> int:
    """YAML's forms: 0b1, 0o7 and 017, 0x1f, 1_000."""
    plain = text.replace("_", "")
    sign, digits = (-1, plain[1:]) if plain[:1] == "-" else (1, plain.removeprefix("+"))
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    number = sign * int(digits, 8 if octal else 0)
    float(number)  # OverflowError where JSON has none as large: only texts of decimals are bounded by themselves
    return number


def _number(number: float) -> int | float:
    """As Go writes a number into JSON: without a point where it is whole."""
    if not math.isfinite(number):
        raise ValueError("not finite")
    return int(number) if number == int(number) and abs(number) < 1e21 else number

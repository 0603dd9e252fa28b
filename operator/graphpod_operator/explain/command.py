"""`graphpod explain`: reads files and clusters, prints, and ends with the verdict's exit code.

0: can start, with graphs as requested. 2: the file or an argument is wrong; the message names file, line and field.
3: can start, with less than requested of graphs. 4: cannot start: the first lines say why, a line for each reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from graphpod_operator.api import quantity
from graphpod_operator.api.names import SHORT_NAME
from graphpod_operator.cache.child import Child
from graphpod_operator.conditions.message import shortened
from graphpod_operator.explain import document, live, manifest
from graphpod_operator.explain.explanation import Explanation, as_dict, explain
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.service_argument import HELP, service_name
from graphpod_operator.explain.text import Paint, coloured, plain, summary, text
from graphpod_operator.install.allow_lists import DEFAULT, AllowLists, AllowListsInvalid
from graphpod_operator.install.engine_images import Images
from graphpod_operator.intent.resolver_input import features, wants_gpu
from graphpod_policy import GPUS, ModelFacts, ModelUnreadable, NodeFacts, SpeculativeMethod
from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_policy.node import CONTEXT_BYTES

INVALID = 2
STDIN = "standard input"
MOST_SAID = 2000
"""Characters of a message: the names in a file may have any length."""
MOST_COMPLAINTS = 40
"""Lines about one file. After so many fixes the file is checked again anyway."""

PARTS = ("gpu", "count", "memory")
COUNT_DIGITS, SHOWN = 6, 80
"""Of the GPUs of a node; and characters of a value in a message."""
Revisions = tuple[Child, ...]


def add(commands: Any, images: Images) -> None:
    """The command's arguments."""
    parser = commands.add_parser(
        "explain",
        help="show what a service will run, which rule decides it, and what it costs; needs no cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("live", nargs="?", metavar="NAME", help=HELP)
    parser.add_argument("-f", "--file", help="a file with InferenceServices; - is standard input")
    parser.add_argument(
        "-n",
        "--namespace",
        default=None,
        help="namespace of the live service (default: that of the kubeconfig's context)",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.add_argument(
        "--node", metavar="gpu=KIND,count=N", help=f"the node it would run on; kinds: {', '.join(GPUS)}; or memory=80Gi"
    )
    parser.add_argument("--model-config", type=Path, metavar="FILE", help="the model's config.json")
    parser.add_argument(
        "--draft-config", type=Path, metavar="FILE", help="config.json of the draft model; needs --model-config"
    )
    parser.add_argument("--diff", metavar="FILE", help="the same service after a change; shows what the change does")
    parser.add_argument(
        "--allowed",
        type=allow_lists,
        default=DEFAULT,
        metavar="JSON",
        help="what services may use, as in the operator's option --allowed (default: the chart's own lists)",
    )
    parser.set_defaults(run=lambda arguments: run(arguments, images))


def allow_lists(text: str) -> AllowLists:
    """Of an argument: the lists of what services may use."""
    try:
        return AllowLists.read(text)
    except AllowListsInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(arguments: argparse.Namespace, images: Images) -> int:
    """The command; its exit code."""
    try:
        manifests, revisions = _manifests(arguments)
        found = [_explained(entry, arguments) for entry in manifests]
        if arguments.diff is not None:
            return _diff(found, arguments, images)
        _print(arguments.output, [_as_plain(each, revisions) for each in found], lambda: _texts(found, revisions))
        return max(each.verdict.exit_code for each in found)
    except manifest.ManifestInvalid as invalid:
        _complain(invalid.complaints)
    except InputError as mistake:
        print(f"error: {_on_terminal(str(mistake))}", file=sys.stderr)
    return INVALID


def _on_terminal(words: str) -> str:
    """A message about somebody's file: cut, and without the control characters by which it could drive a terminal."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in shortened(words, MOST_SAID))


def _complain(complaints: tuple[manifest.Complaint, ...]) -> None:
    for one in complaints[:MOST_COMPLAINTS]:
        print(f"error: {_on_terminal(str(one))}", file=sys.stderr)
    if len(complaints) > MOST_COMPLAINTS:
        print(f"error: and {len(complaints) - MOST_COMPLAINTS} more", file=sys.stderr)


def _manifests(arguments: argparse.Namespace) -> tuple[list[manifest.Manifest], Revisions]:
    """What to explain, and the ControllerRevisions of a live service."""
    if arguments.file is not None:
        if arguments.live is not None:
            raise InputError("-f FILE and NAME are both given: use -f for a file, or NAME for a live service")
        return _read(arguments.file), ()
    if arguments.live is None:
        raise InputError("no service given: use -f FILE, or NAME for a live service")
    try:
        name = service_name(arguments.live)
    except InputError as mistake:
        raise InputError(f"{mistake}; for a file use -f FILE") from mistake
    from graphpod_operator.explain import live_object

    namespace = arguments.namespace or live_object.namespace() or manifest.DEFAULT_NAMESPACE
    raw, revisions = live_object.fetch(namespace, name)
    return manifest.read(f"{SHORT_NAME}/{name}", json.dumps(raw).encode()), revisions


def _read(path: str) -> list[manifest.Manifest]:
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            return manifest.read(STDIN if path == "-" else path, file.read(document.MOST_BYTES + 1))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _explained(entry: manifest.Manifest, arguments: argparse.Namespace) -> Explanation:
    model = _model(arguments.model_config) if arguments.model_config else None
    notes: list[str] = []
    asked = features(entry.spec)
    if model is not None and asked.speculative is SpeculativeMethod.Mtp:
        model = replace(model, draft=_model(arguments.model_config, asked.speculative))
    if arguments.draft_config is not None:
        if model is None:
            raise InputError("--draft-config: give the model's own config.json, too, with --model-config")
        if asked.speculative_draft is not None:
            head = asked.speculative if asked.speculative in DRAFT_HEADS else None
            model = replace(model, draft=_model(arguments.draft_config, head))
        else:
            notes.append("the service has no draft model: --draft-config is not used")
    node = None if arguments.node is None else _node(arguments.node)
    if node is not None and not wants_gpu(entry.spec):
        notes.append("the service requests no GPU: the node's GPUs are not used")
        node = None
    elif node is not None and asked.gpus > 1 and "count=" not in arguments.node:
        notes.append(
            f"--node {arguments.node} is 1 GPU; for {asked.gpus} use --node {arguments.node},count={asked.gpus}"
        )
    return explain(entry, model, node, notes=tuple(notes), allowed=arguments.allowed)


def _node(given: str) -> NodeFacts:
    """A node with nothing on its GPUs."""
    parts = dict(part.partition("=")[::2] for part in given.split(","))
    if unknown := sorted(parts.keys() - set(PARTS)):
        raise InputError(f"--node: {unknown[0][:SHOWN]!r} is not one of {', '.join(PARTS)}")
    count = parts.get("count", "1")
    if not count.isdecimal() or len(count) > COUNT_DIGITS or int(count) < 1:
        raise InputError(f"--node: count={count[:SHOWN]}: expected a number of at least 1")
    kind, memory = parts.get("gpu"), parts.get("memory")
    if (kind is None) == (memory is None) or (kind is not None and kind not in GPUS):
        kinds = ", ".join(GPUS)
        raise InputError(f"--node: {given[:SHOWN]}: expected gpu=KIND with one of {kinds}, or memory=80Gi")
    if kind is not None:
        return GPUS[kind].node(int(count))
    try:
        memory_bytes = quantity.whole(memory or "")
        return NodeFacts(int(count), None, memory_bytes, max(0, memory_bytes - CONTEXT_BYTES))
    except ValueError as error:
        raise InputError(f"--node: {error}") from error


def _model(path: Path, head: SpeculativeMethod | None = None) -> ModelFacts:
    """The model, or the draft `head` of this form, that a config.json describes."""
    try:
        config = json.loads(path.read_bytes())
    except IsADirectoryError as error:
        raise InputError(f"{path}: a folder; give {path / 'config.json'}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply for a model's config.json") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: expected an object, as in a model's config.json")
    try:
        return ModelFacts.of(config).served if head is None else ModelFacts.of_head(head, config)
    except ModelUnreadable as error:
        raise InputError(f"{path}: {error}") from error


def _diff(found: list[Explanation], arguments: argparse.Namespace, images: Images) -> int:
    from graphpod_operator.explain import diff

    after = [_explained(entry, arguments) for entry in _read(arguments.diff)]
    if len(found) != 1 or len(after) != 1:
        raise InputError("--diff compares two services: each file must hold exactly one")
    change = diff.change(found[0], after[0], images)
    _print(arguments.output, [diff.as_plain(change)], lambda: diff.change_text(change))
    return after[0].verdict.exit_code


def _as_plain(explanation: Explanation, revisions: Revisions) -> dict[str, Any]:
    there = live.live(explanation, revisions)
    return as_dict(explanation) | ({"live": live.as_plain(there, explanation)} if there else {})


def _texts(found: list[Explanation], revisions: Revisions) -> str:
    paint = coloured if sys.stdout.isatty() else plain
    head = summary(found, paint) if len(found) > 1 else ""
    return head + "\n".join(_text(each, revisions, paint) for each in found)


def _text(explanation: Explanation, revisions: Revisions, paint: Paint) -> str:
    there = live.live(explanation, revisions)
    whole = text(explanation, paint)
    return whole + ("\n" + live.live_text(there, explanation) if there else "")


def _print(output: str, plain_values: list[dict[str, Any]], text_of: Callable[[], str]) -> None:
    value: Any = plain_values[0] if len(plain_values) == 1 else plain_values
    if output == "json":
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    elif output == "yaml":
        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110))
    else:
        sys.stdout.write(text_of())

"""The arguments of `graphpod top`, `why` and `models`; they run without the operator, with the user's own rights."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from graphpod_operator.explain.command import INVALID
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.manifest import DEFAULT_NAMESPACE
from graphpod_operator.explain.service_argument import HELP, service_name

INTERVAL = 5.0
SHORTEST, LONGEST = 1.0, 3600.0
"""Of --interval, in seconds."""

TOP = """\
A table of services: status, graph policies, captured sizes, pods that serve, and what their engines do now.

On a terminal it refreshes until Ctrl-C. In a pipe, with --once or -o json it prints one table. Rates are per second.
Without --prometheus each pod's /metrics is read by port-forward: docs/how-to/terminal.md lists the rights.
Exit codes: 0; 2 where the cluster, Prometheus or an argument cannot be used.
"""
WHY = """\
One page about a service: verdict, the next step as a command, conditions, graph decisions, pods, last failure, events.

Exit codes: 0: Ready as planned. 2: the cluster or an argument cannot be used. 3: Ready, but something is less than
requested, or a newer plan is offered. 4: not Ready.
"""
MODELS = """\
A table of downloaded weights: claim, folder, source, commit, size, and the services that use them.

A folder is listed once it is complete, or while a service waits for it. Needs the rights to list claims and services.
Exit codes: 0; 2 where the cluster or an argument cannot be used.
"""


def add(commands: Any) -> None:
    """The arguments of the commands."""
    top = _command(commands, "top", "show what services do, as a live table", TOP)
    top.add_argument("-A", "--all-namespaces", action="store_true", help="services of all namespaces")
    top.add_argument(
        "--prometheus",
        metavar="URL",
        help="read the metrics from this Prometheus (default: from each pod, by port-forward)",
    )
    top.add_argument(
        "--interval", type=_interval, default=INTERVAL, metavar="SECONDS", help="between two readings (%(default)s)"
    )
    top.add_argument("--once", action="store_true", help="print one table; on a terminal, too")
    top.set_defaults(run=_top)

    why = _command(commands, "why", "show why a service is not Ready, and the next step", WHY)
    why.add_argument("service", metavar="NAME", help=HELP)
    why.set_defaults(run=_why)

    models = _command(commands, "models", "show what claims hold of downloaded weights", MODELS)
    models.add_argument("-A", "--all-namespaces", action="store_true", help="claims of all namespaces")
    models.set_defaults(run=_models)


def _command(commands: Any, name: str, help: str, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--namespace", default=None, help="namespace (default: that of the kubeconfig's context)")
    parser.add_argument("--context", default=None, help="context of the kubeconfig (default: the current one)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def _interval(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds from {SHORTEST:g} to {LONGEST:g}")
    return seconds


def _top(arguments: argparse.Namespace) -> int:
    try:
        _prepare(arguments)
        from graphpod_operator.terminal import top

        return top.run(arguments)
    except InputError as mistake:
        return _complain(mistake)


def _why(arguments: argparse.Namespace) -> int:
    try:
        name = service_name(arguments.service)
        _prepare(arguments)
        from graphpod_operator.terminal import why

        return why.run(arguments, name)
    except InputError as mistake:
        return _complain(mistake)


def _models(arguments: argparse.Namespace) -> int:
    try:
        _prepare(arguments)
        from graphpod_operator.terminal import models

        return models.run(arguments)
    except InputError as mistake:
        return _complain(mistake)


def _prepare(arguments: argparse.Namespace) -> None:
    """Fill in the namespace. Raises InputError where the Kubernetes client is missing."""
    try:
        from graphpod_operator.kube.connection import namespace_of
    except ImportError as error:
        raise InputError(f"{error}: to read a cluster run in a clone: pip install '.[operator]'") from error
    arguments.namespace = arguments.namespace or namespace_of(arguments.context) or DEFAULT_NAMESPACE


def _complain(mistake: InputError) -> int:
    print(f"error: {mistake}", file=sys.stderr)
    return INVALID

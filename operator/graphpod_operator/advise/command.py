"""`graphpod advise`: which sizes no pass takes, where rows are lost to padding, and a better ladder of the same memory.

Reads the service's pods through port-forwards, or a Prometheus that scrapes them. 0: there is a verdict, whichever.
2: the service or its metrics cannot be read; the message says what to do.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from graphpod_operator.api import duration
from graphpod_operator.explain.command import INVALID
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.manifest import DEFAULT_NAMESPACE
from graphpod_operator.explain.service_argument import HELP, service_name

DEFAULT_SINCE = "1h"


def add(commands: Any) -> None:
    """The command's arguments."""
    parser = commands.add_parser(
        "advise",
        help="suggest sizes of graphs for the load that a service has",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("live", metavar="NAME", help=HELP)
    parser.add_argument("-n", "--namespace", default=None, help="namespace (default: that of the kubeconfig's context)")
    parser.add_argument("--context", default=None, help="context of the kubeconfig (default: the current one)")
    parser.add_argument("--prometheus", metavar="URL", help="read a Prometheus (default: port-forwards to the pods)")
    parser.add_argument(
        "--since", metavar="1h", help=f"with --prometheus: how far back, such as 30m or 24h (default: {DEFAULT_SINCE})"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The command; its exit code."""
    try:
        return _run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return INVALID


def _run(arguments: argparse.Namespace) -> int:
    name = service_name(arguments.live)
    if arguments.since is not None and arguments.prometheus is None:
        raise InputError("--since needs --prometheus URL: the counters of a pod begin with its start")
    try:
        seconds = duration.seconds(arguments.since or DEFAULT_SINCE)
    except ValueError as error:
        raise InputError(f"--since: {error}") from error
    try:
        from graphpod_operator.advise import reader, text
        from graphpod_operator.kube import connection
    except ImportError as error:
        raise InputError(f"{error}: to read a cluster run in a clone: pip install '.[operator]'") from error
    namespace = arguments.namespace or connection.namespace_of(arguments.context) or DEFAULT_NAMESPACE
    if arguments.prometheus is not None:
        read = reader.of_prometheus(arguments.prometheus, namespace, name, seconds)
    else:
        read = reader.of_pods(namespace, name, arguments.context)
    advised = text.Advised.of(namespace, name, read)
    if arguments.output == "json":
        sys.stdout.write(json.dumps(text.as_plain(advised), indent=2) + "\n")
    else:
        sys.stdout.write(text.text(advised))
    return 0

"""`graphpod models`: what claims hold of downloaded weights, and which services use it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from graphpod_operator.explain.input_error import InputError
from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.terminal.sources import objects
from graphpod_operator.terminal.views.models import ModelRow, as_list, rows, text


def run(arguments: argparse.Namespace) -> int:
    """The command; its exit code. Raises InputError."""
    try:
        found = asyncio.run(_rows(arguments))
    except ApiError as error:
        raise InputError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps(as_list(found), indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(text(found, arguments.all_namespaces))
    return 0


async def _rows(arguments: argparse.Namespace) -> list[ModelRow]:
    namespace = None if arguments.all_namespaces else arguments.namespace
    async with objects.connected(arguments.context) as wire:
        return rows(await objects.claims(wire, namespace), await objects.whole_services(wire, namespace))

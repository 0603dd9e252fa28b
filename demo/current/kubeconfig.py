"""Which cluster the reader's kubeconfig points at, read from its files alone.

Not from `kubectl config view`: a kubectl may be a wrapper that asks the server for its version before any command
(the Google Cloud SDK's does), and nothing may be sent to a cluster that is not named yet.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import TestbedError


@dataclass(frozen=True)
class Context:
    """kubectl's current context. `files` is what KUBECONFIG has to be for it to mean the same cluster."""

    name: str
    server: str
    user: str
    files: tuple[Path, ...]

    @property
    def kubeconfig(self) -> str:
        return os.pathsep.join(map(str, self.files))


def current(environment: Mapping[str, str]) -> Context:
    """By kubectl's rules: the files of KUBECONFIG, else ~/.kube/config; whichever says a thing first is right.

    Raises `TestbedError` when there is no current context, or no server in it.
    """
    named = [Path(word) for word in environment.get("KUBECONFIG", "").split(os.pathsep) if word]
    places = named or [Path(environment.get("HOME", "/")) / ".kube" / "config"]
    shown = os.pathsep.join(map(str, places))
    files = tuple(place.absolute() for place in places if place.is_file())
    if not files:
        where = "KUBECONFIG names" if named else "KUBECONFIG is not set, and the default is"
        raise TestbedError(f"no kubeconfig: {where} {shown}, which does not exist; set KUBECONFIG to your cluster's")
    contents = [_content(file) for file in files]
    name = next((found for content in contents if (found := content.get("current-context"))), None)
    if not name:
        raise TestbedError(
            f"{shown} has no current context, and none is guessed: choose one with `kubectl config use-context NAME`"
        )
    context = _entry(contents, "contexts", "context", str(name), shown)
    cluster = _entry(contents, "clusters", "cluster", str(context.get("cluster", "")), shown)
    if not cluster.get("server"):
        raise TestbedError(f"{shown}: cluster {context.get('cluster')!r} of context {name!r} has no server")
    return Context(str(name), str(cluster["server"]), str(context.get("user", "")), files)


def _content(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise TestbedError(f"{file} cannot be read as a kubeconfig: {error}") from error
    if not isinstance(found, dict):
        raise TestbedError(f"{file} is no kubeconfig: it holds a {type(found).__name__}, not a mapping")
    return found


def _entry(contents: list[dict[str, Any]], many: str, one: str, name: str, shown: str) -> dict[str, Any]:
    for content in contents:
        for entry in content.get(many) or []:
            if entry.get("name") == name:
                return dict(entry.get(one) or {})
    raise TestbedError(f"{shown} has no {one} {name!r}, which its current context needs: `kubectl config get-contexts`")

"""What one tree of the sources makes of services, as JSON.

`upgrade_check` runs this file twice: with the packages of an earlier commit, and with those of today. So it imports
only them and libraries, and no part of the tests. Standard input: {"cases": {name: spec}, "files": {name: text},
"kept": {name: {"spec", "body"}}}. The children come from functions, and `PLACES` knows where earlier commits had them.
All the rest is read from the output of the command lines.
"""

import contextlib
import importlib
import inspect
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Raw = dict[str, Any]
UID = "11111111-2222-3333-4444-555555555555"
IMAGES = ("graphpod.dev/runtime:base", "graphpod.dev/runtime:base-gpu")
PROMETHEUS = "http://prometheus.monitoring.svc:9090"
ACCESS = {"admin": [{"namespaceSelector": {}}], "http": [{"podSelector": {}}], "routes": ["gateways"]}
PLACES = {
    "Service": ("cache.service", "observe"),
    "Images": ("install.engine_images", "render.images"),
    "Access": ("install.network_access", "access"),
    "Installation": ("install.installation", "installation"),
    "PlanInput": ("plan.plan_input",),
    "desire": ("plan.desired_children", "plan.planner", "plan"),
    "Child": ("cache.child",),
}
"""Name → the modules of graphpod_operator that have or had it, the newest first."""
COMMANDS = {
    "graphpod": ((), ("operator", "run"), ("crd",), ("explain",), ("rules",), ("docs",)),
    "graphpod-engine": ((), ("serve",), ("generate",), ("convert",), ("bench", "graphs"), ("bench", "serve")),
}
MAINS = {"graphpod": "graphpod_operator.cli", "graphpod-engine": "graphpod_runtime.cli"}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def main() -> int:
    given = json.load(sys.stdin)
    schema = yaml.safe_load(_said("graphpod", "crd"))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec_of = schema["properties"]["spec"]
    stored = {name: defaulted(spec_of, spec) for name, spec in given["cases"].items()}
    kept = {name: children(defaulted(spec_of, one["spec"]), one["body"]) for name, one in given.get("kept", {}).items()}
    found = {
        "stored": stored,
        "children": {name: children(spec) for name, spec in stored.items()},
        "kept": kept,
        "explain": {name: explained(text) for name, text in given["files"].items()},
        "schema": without_descriptions(schema),
        **pages(),
        "exits": {code.name: int(code) for code in importlib.import_module("graphpod_policy").ExitCode},
        "rules": rules(),
        "options": {" ".join((name, *words)): options(name, words) for name in COMMANDS for words in COMMANDS[name]},
    }
    json.dump(found, sys.stdout)
    return 0


def defaulted(schema: Raw, value: Any) -> Any:
    """A value with the schema's defaults, as the API server stores it and as it is read by a newer schema."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), one) for one in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    missing = {name: one["default"] for name, one in known.items() if name not in value and "default" in one}
    return {name: defaulted(known.get(name, {}), one) for name, one in {**value, **missing}.items()}


def without_descriptions(node: Any) -> Any:
    """A schema without its texts. A field that is called so keeps its place: that is a schema, and no text."""
    if isinstance(node, list):
        return [without_descriptions(one) for one in node]
    if not isinstance(node, dict):
        return node
    texts = ("description", "message")
    return {
        name: without_descriptions(one) for name, one in node.items() if name not in texts or not isinstance(one, str)
    }


def children(spec: Raw, memory: Raw | None = None) -> Raw:
    """`Kind` → body of what the operator wants for a spec, or the reason why it refuses. With `memory`, the body of the
    ControllerRevision that an earlier operator left.
    """
    wanted = _planner()(spec, memory)
    if hasattr(wanted, "reason"):
        return {"refused": wanted.reason.name}
    offered = sorted(one.reason.name for one in wanted.news)
    return {"children": {child.resource.name: child.body for child in wanted.children}, "offered": offered}


def _planner() -> Callable[[Raw, Raw | None], Any]:
    """`desire` of this tree."""
    desire, service, images = _there("desire"), _there("Service"), _there("Images")(*IMAGES)
    access = _there("Access").read(json.dumps(ACCESS))

    def plan(spec: Raw, memory: Raw | None) -> Any:
        metadata = {"name": "demo", "namespace": "ns", "uid": UID, "resourceVersion": "1", "generation": 1}
        found = service.of({"metadata": metadata, "spec": spec})
        if "given" in inspect.signature(desire).parameters:
            installed = _there("Installation")(images, prometheus=PROMETHEUS, access=access)
            return desire(_there("PlanInput")(found, installed, [] if memory is None else [_child(memory)]))
        assert memory is None, "only today's tree is asked what it makes of an earlier one's"
        return desire(found, images, prometheus=PROMETHEUS, access=access)

    return plan


def _child(body: Raw) -> Any:
    resource = importlib.import_module("graphpod_operator.kube.resources").Resource.ControllerRevision
    metadata = {**body["metadata"], "uid": "kept", "resourceVersion": "7"}
    return _there("Child").of(resource, {**body, "metadata": metadata})


def _there(name: str) -> Any:
    for place in PLACES[name]:
        with contextlib.suppress(ModuleNotFoundError):
            found = getattr(importlib.import_module(f"graphpod_operator.{place}"), name, None)
            if found is not None:
                return found
    raise LookupError(f"this tree has no {name} in {PLACES[name]}: add where it was")


def explained(text: str) -> Raw:
    """What `graphpod explain` says of a file: its exit code and what is no text."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        status, said = _run("graphpod", "explain", "-f", file.name, "-o", "json")
    try:
        found = json.loads(said)
    except ValueError:
        return {"exit": status}
    services = found if isinstance(found, list) else [found]
    return {"exit": status, "services": [_of_explanation(one) for one in services]}


def _of_explanation(one: Raw) -> Raw:
    phases = {
        phase: {name: one[phase][name] for name in ("requested", "planned", "sizes")} for phase in ("prefill", "decode")
    }
    return {
        "verdict": one["verdict"],
        "configHash": one["configHash"],
        "obstacles": [obstacle["reason"] for obstacle in one["obstacles"]],
        "decisions": sorted(f"{row['rule']} {row.get('phase')} {row['outcome']}" for row in one["decisions"]),
        **phases,
    }


def pages() -> Raw:
    """Metrics with type, process and labels; conditions with their reasons, and each reason's status and Stalled."""
    with tempfile.TemporaryDirectory() as folder:
        _said("graphpod", "docs", "--out", folder)
        metrics = (Path(folder) / "metrics.md").read_text()
        conditions = (Path(folder) / "conditions.md").read_text()
    found: Raw = {"metrics": {}, "reasons": {}}
    for row in _rows(metrics):
        if row[0].startswith("`"):
            found["metrics"][row[0].strip("`")] = row[1:4]
    for section in re.split(r"^## ", conditions, flags=re.MULTILINE)[1:]:
        kind = section.splitlines()[0]
        for row in _rows(section):
            if row[1] in ("True", "False", "Unknown"):
                found["reasons"].setdefault(f"{kind}/{row[0]}", []).append([row[1], row[-1]])
    return found


def _rows(text: str) -> list[list[str]]:
    cells = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in cells if len(row) > 2]


def rules() -> Raw:
    """Id → severity and stage."""
    found = json.loads(_said("graphpod", "rules", "-o", "json"))
    return {row["id"]: [row["severity"], row["stage"]] for row in found["rules"]}


def options(name: str, words: tuple[str, ...]) -> list[str] | None:
    """The options that the help of a command names; None where there is no such command."""
    status, said = _run(name, *words, "--help")
    return sorted(set(OPTION.findall(said))) if status == 0 else None


def _said(name: str, *words: str) -> str:
    status, said = _run(name, *words)
    assert status == 0, (name, *words, status)
    return said


def _run(name: str, *words: str) -> tuple[int, str]:
    """Exit status and standard output of a command line, in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = int(importlib.import_module(MAINS[name]).main(list(words)) or 0)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return status, said.getvalue()


if __name__ == "__main__":
    sys.exit(main())

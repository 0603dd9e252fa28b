"""The words of `python3 -m testbed status`: values in, text out."""

from collections.abc import Sequence
from pathlib import Path

from testbed import parts
from testbed import steps as timing
from testbed.host.network import netns
from testbed.nodes import addons
from testbed.report import columns
from testbed.report.columns import align, megabytes
from testbed.report.status import NodeView, State, View

VERB = "python3 -m testbed"


def overview(views: Sequence[View]) -> str:
    """Every testbed of the machine, what the levels are for, and where to go from here."""
    if not views:
        start = [
            "No testbed is up on this machine. To bring one up:",
            f"  {VERB} up --level api --name play   an API server to work against",
            f"  {VERB} up                           a cluster with a node, called demo",
        ]
        return "\n".join([*start, "", levels()])
    titles = ("TESTBED", "LEVEL", "NODES", "STATE", "UP FOR", "MEMORY", "API SERVER")
    rows = [
        (
            v.record.name,
            v.record.level,
            str(v.record.nodes or "-"),
            _state(v),
            columns.duration(v.age),
            megabytes(v.memory),
            v.addresses.server,
        )
        for v in views
    ]
    first = views[0].record.name
    more = [f"more about one:  {VERB} status --name {first}", f"talk to one:     {VERB} kubectl --name {first} get ns"]
    return "\n".join([align(titles, rows), "", *more, "", levels()])


def levels() -> str:
    rows = [(level, use.runs, use.good_for) for level, use in parts.USES.items()]
    return align(("LEVEL", "WHAT RUNS", "GOOD FOR"), rows)


def _state(view: View) -> str:
    return f"{view.state}: {', '.join(view.dead)} dead" if view.state is State.BROKEN and view.dead else view.state


def absent(name: str, others: Sequence[str]) -> str:
    also = [f"Up on this machine: {', '.join(others)}"] if others else []
    return "\n".join([f"testbed {name} is not up: `{VERB} up --name {name}` brings it up", *also])


def detail(view: View, folder: Path) -> str:
    """One testbed: its components with purpose and place, its nodes, where its files are, how to go on."""
    found = view.record
    nodes = f", {found.nodes} node{'s' * (found.nodes > 1)}" if found.nodes else ""
    blocks = [f"testbed {found.name}: level {found.level}{nodes}, {_condition(view)}", _components(view)]
    if view.nodes:
        blocks += [_nodes(view.nodes), _images(view.nodes)]
    last = f"{commands(found.name, folder)}\ninside:   {_entrance(view, folder)}"
    return "\n\n".join([*blocks, _places(view, folder), _network(view), last])


def _condition(view: View) -> str:
    match view.state:
        case State.UP:
            return f"up for {columns.duration(view.age)}, {megabytes(view.memory)}"
        case State.BUSY:
            return "busy: an `up` or `down` is at work on it"
        case State.BROKEN:
            why = f"{', '.join(view.dead)} dead" if view.dead else "its `up` was cut short"
            return f"broken ({why}): the next `up` or `down` cleans it"


def _components(view: View) -> str:
    rows = []
    for running in view.components:
        name = running.component.name
        state = f"pid {running.component.process.pid}" if running.alive else "dead"
        where = parts.listens(name, view.addresses)
        rows.append((name, state, megabytes(running.rss), where, parts.part(name).purpose))
    return align(("COMPONENT", "STATE", "MEMORY", "LISTENS AT", "WHAT FOR"), rows)


def _nodes(nodes: Sequence[NodeView]) -> str:
    rows = [(n.name, n.address, n.network, str(n.pods), megabytes(n.rss)) for n in nodes]
    return align(("NODE", "ADDRESS", "PODS' NETWORK", "PODS", "THEIR MEMORY"), rows)


def _images(nodes: Sequence[NodeView]) -> str:
    silent = [(f"{n.name}'s containerd does not answer", "-") for n in nodes if n.images is None]
    names = sorted({image for n in nodes for image in n.images or ()})
    rows = [(name, ", ".join(n.name for n in nodes if name in (n.images or ()))) for name in names]
    return align(("IMAGE", "LOADED ON"), [*rows, *silent])


def _places(view: View, folder: Path) -> str:
    files = [
        ("pki/admin.kubeconfig", "the administrator's; next to it operator, user1 … user4, who may do nothing yet"),
        ("log/COMPONENT.log", "what each component prints"),
        ("log/audit.log", "every request as a line of JSON: who asked what, and the answer's code"),
        (timing.FILE, "how long each step of `up` took"),
    ]
    if view.nodes:
        files += [
            ("nodeN/volumes", f"behind StorageClass {addons.STORAGE_CLASS}, the default"),
            ("shared", f"behind StorageClass {addons.SHARED_CLASS}: ReadWriteMany, on every node"),
        ]
    return align((f"BELOW {folder}", "WHAT IT IS"), files)


def _network(view: View) -> str:
    addresses = view.addresses
    rows = [
        (addresses.nodes, "API server and nodes; this machine has a route"),
        (addresses.cluster, "pods and services, the same"),
        (f"netns {netns(view.record.name)}", "the control plane: 127.0.0.1 above is in there"),
    ]
    if view.nodes:
        rows.append((f"netns {netns(view.record.name)}.N", "nodeN"))
    return align(("NETWORK", "WHAT IT IS"), rows)


def _entrance(view: View, folder: Path) -> str:
    """How a shell gets inside: a node has mounts of its own as well."""
    enter = f"nsenter --net=/run/netns/{netns(view.record.name)}"
    return f"{enter}.1 --mount={folder}/mounts/node1 bash" if view.nodes else f"{enter} bash"


def commands(name: str, folder: Path) -> str:
    """How to go on with a testbed that is up."""
    return "\n".join(
        [
            f"use it:   export KUBECONFIG={folder}/pki/admin.kubeconfig",
            f"          {VERB} kubectl --name {name} get pods -A",
            f"see it:   {VERB} status --name {name}",
            f"          {VERB} audit --name {name} --follow",
            f"stop it:  {VERB} down --name {name}",
        ]
    )

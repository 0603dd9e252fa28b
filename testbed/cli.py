"""`python3 -m testbed …`: parse, call one method, say what happened."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from testbed.binaries import golang, inventory, packages
from testbed.cluster import Cluster
from testbed.control import audit
from testbed.errors import TestbedError
from testbed.host import record
from testbed.host.network import Family
from testbed.level import Level
from testbed.paths import cache_root
from testbed.report import status, status_text
from testbed.steps import Steps


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 a `TestbedError` (printed), 2 wrong usage, 3 (`status`) not up, 130 interrupted."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # progress shows at once in a pipe
    parser = _parser()
    own, kubectl = split(argv)
    args = parser.parse_args(own)
    args.kubectl = kubectl
    try:
        return int(args.action(args) or 0)
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the next `up` or `down` cleans what is there", file=sys.stderr)
        return 130


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words and kubectl's: after `kubectl [--name NAME]` everything is kubectl's, options included."""
    words = list(argv)
    if words[:1] != ["kubectl"]:
        return words, []
    ours = 3 if words[1:2] == ["--name"] else 2 if words[1:] and words[1].startswith("--name=") else 1
    # A separator is habit in wrappers like this one; kubectl itself would print its help on it.
    rest = ours + 1 if words[ours : ours + 1] == ["--"] else ours
    return words[:ours], words[rest:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m testbed", description="A real Kubernetes on this machine.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    build = verbs.add_parser("build", help="build the binaries and install the Debian packages that are missing")
    build.add_argument("tools", nargs="*", metavar="TOOL", help=f"only these, of: {', '.join(golang.BY_NAME)}")
    build.add_argument("--packages", action="store_true", help="only the Debian packages")
    build.add_argument("--check", action="store_true", help="only ask each cached binary for its version")
    build.set_defaults(action=_build)

    plain = argparse.RawDescriptionHelpFormatter
    up = verbs.add_parser("up", help="bring a testbed up", epilog=status_text.levels(), formatter_class=plain)
    _name(up)
    up.add_argument(
        "--level", type=Level, choices=list(Level), default=Level.NODE, help="of a cluster, default: %(default)s"
    )
    up.add_argument("--nodes", type=int, metavar="N", help="nodes, default: 1 at level node, 3 simulated ones at sim")
    up.add_argument(
        "--ip-family",
        type=Family,
        choices=list(Family),
        default=Family.IPV4,
        help="of every address, of machines, pods and services, default: %(default)s",
    )
    up.set_defaults(action=_up)

    for verb, text, action in (
        ("down", "take it down and leave the machine as it was", lambda a: _running(a.name).down()),
        ("kubeconfig", "print the path of the admin's kubeconfig", _kubeconfig),
    ):
        sub = verbs.add_parser(verb, help=text)
        _name(sub)
        sub.set_defaults(action=action)

    state = verbs.add_parser("status", help="every testbed of the machine; with --name one in full: what runs where")
    state.add_argument("--name", help="which one, default: all")
    state.set_defaults(action=_status)

    load = verbs.add_parser("load", help="give an image (OCI layout, OCI or docker archive) to every node")
    _name(load)
    load.add_argument("image", type=Path, metavar="IMAGE")
    load.set_defaults(action=lambda a: _running(a.name).load(a.image))

    log = verbs.add_parser("audit", help="every request to the API server, one a line")
    _name(log)
    log.add_argument("-f", "--follow", action="store_true", help="wait for more, until Ctrl-C")
    log.add_argument("--user", help="only this one's; the last part of its name will do")
    log.add_argument("--writes", action="store_true", help="only what changes something")
    log.set_defaults(action=_audit)

    kubectl = verbs.add_parser("kubectl", help="kubectl against the testbed; everything after it goes to kubectl")
    _name(kubectl)
    kubectl.set_defaults(action=_kubectl)
    return parser


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="demo", help="which testbed, default: %(default)s")


def _running(name: str) -> Cluster:
    """The testbed as it was brought up: level and nodes need not be repeated."""
    found = record.load(name)
    return Cluster(name, found.level, found.nodes, family=found.family) if found else Cluster(name)


def _build(args: argparse.Namespace) -> int:
    unknown = [t for t in args.tools if t not in golang.BY_NAME]
    if unknown:
        raise TestbedError(f"no tool is called {', '.join(unknown)}; there are: {', '.join(golang.BY_NAME)}")
    names = args.tools or [tool.name for tool in golang.TOOLS]
    if args.check:
        found = inventory.look([golang.BY_NAME[name] for name in names], golang.go_version())
        print(inventory.table(found))
        return int(any(f.state is not inventory.State.RIGHT for f in found))
    print("build:")
    steps = Steps(print)
    with steps.step("Debian packages"):
        packages.ensure()
    if args.packages:
        return 0
    with steps.step("binaries"):
        places = golang.build(names)
    print(f"build: {len(places)} binaries ready in {steps.seconds:.1f} s, under {cache_root()}/bin")
    return 0


def _up(args: argparse.Namespace) -> int:
    cluster = Cluster(args.name, args.level, args.nodes, family=args.ip_family)
    cluster.up()
    print(status_text.commands(cluster.name, cluster.folder))
    return 0


def _status(args: argparse.Namespace) -> int:
    """Without a name every testbed; 0 when what was asked for is up."""
    everyone = record.load_all()
    asked = [r for r in everyone if args.name in (None, r.name)]
    views = [status.observe(r) for r in asked]
    if args.name is None:
        print(status_text.overview(views))
    elif views:
        print(status_text.detail(views[0], record.folder(args.name)))
    else:
        print(status_text.absent(args.name, [r.name for r in everyone]))
    return 0 if views and all(v.state is status.State.UP for v in views) else 3


def _audit(args: argparse.Namespace) -> int:
    cluster = _running(args.name)
    cluster.environment()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is a way to end, and so is Ctrl-C
    with suppress(KeyboardInterrupt):
        for line in audit.lines(cluster.audit_log, audit.Filter(args.user, args.writes), follow=args.follow):
            print(line)
    return 0


def _kubeconfig(args: argparse.Namespace) -> int:
    cluster = _running(args.name)
    cluster.environment()
    print(cluster.kubeconfig)
    return 0


def _kubectl(args: argparse.Namespace) -> int:
    cluster = _running(args.name)
    binary, environment = cluster.binary("kubectl"), cluster.environment()
    os.execve(binary, ["kubectl", *args.kubectl], environment)

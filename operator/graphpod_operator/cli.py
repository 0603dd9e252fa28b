"""`graphpod`: run the operator, explain what it would do with a service, and write the files made from its code.

Imports neither kopf nor the Kubernetes client, unless the operator runs or a command reads a cluster: a laptop that
only wants an explanation has neither.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from graphpod_operator.advise import command as advise_command
from graphpod_operator.explain import command
from graphpod_operator.explain.command import INVALID
from graphpod_operator.install import monitor_labels
from graphpod_operator.install.allow_lists import DEFAULT, EXAMPLE
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access, AccessInvalid
from graphpod_operator.kube.resources import OPTIONAL
from graphpod_operator.terminal import command as terminal
from graphpod_policy import __version__

DEFAULT_IMAGES = Images(*(f"graphpod.dev/runtime:{__version__}-{kind}" for kind in ("cpu", "cuda")))
PLUGIN = "kubectl-graphpod"
"""The program's other name, by which kubectl finds it."""
WORKERS = 16
"""Services reconciled at the same time by default."""
PIPE_CLOSED = 128 + 13
"""Exit status where the reader of standard output has ended: a shell's for SIGPIPE."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line; the process's exit status."""
    parser = _parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return INVALID
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        if arguments.run is _run_operator:
            raise
        # `head` has what it wants. The interpreter flushes once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_program(), description="Operator of graphpod, and the files made from it.")
    parser.add_argument("--version", action="version", version=f"graphpod {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    operator = commands.add_parser("operator", help="the operator").add_subparsers(required=True, metavar="ACTION")
    run = operator.add_parser(
        "run", help="run in this process, against the cluster of the service account or KUBECONFIG"
    )
    run.add_argument("--namespace", action="append", default=[], help="serve only this namespace; may be repeated")
    run.add_argument(
        "--engine-image",
        default=DEFAULT_IMAGES.cpu,
        metavar="IMAGE",
        help="engine image of services without spec.engine.image (%(default)s)",
    )
    run.add_argument(
        "--engine-gpu-image",
        default=DEFAULT_IMAGES.gpu,
        metavar="IMAGE",
        help="the same for services that request GPUs (%(default)s)",
    )
    run.add_argument(
        "--lease-namespace",
        default=os.environ.get("POD_NAMESPACE", "default"),
        metavar="NAMESPACE",
        help="namespace of the Lease graphpod-operator: of operators that share it, one writes at a time (%(default)s)",
    )
    run.add_argument("--port", type=int, default=8080, help="port of /healthz, /readyz and /metrics (%(default)s)")
    run.add_argument(
        "--liveness-port",
        type=int,
        default=None,
        help="answer a liveness probe at /healthz on this port of $POD_IP, else of localhost, from a thread that the "
        "reconcile loop cannot hold up (default: not)",
    )
    run.add_argument("--workers", type=int, default=WORKERS, help="services reconciled at the same time (%(default)s)")
    run.add_argument(
        "--admin-url",
        default=None,
        metavar="TEMPLATE",
        help="URL of the pods' admin ports, with {ip}, {namespace} and {name}; "
        "from outside the cluster, behind `kubectl proxy`: "
        "http://127.0.0.1:8001/api/v1/namespaces/{namespace}/pods/{name}:8001/proxy (default: http://{ip}:8001)",
    )
    run.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="URL of the Prometheus with the engines' metrics, as KEDA reaches it; for services with "
        "spec.autoscaling.provider KEDA (default: such services are refused)",
    )
    run.add_argument(
        "--pod-monitor-labels",
        type=_labels,
        default={},
        metavar="JSON",
        help='labels of every PodMonitor, by which your Prometheus selects it, such as {"release": "prometheus"} '
        "(default: only the operator's own)",
    )
    run.add_argument(
        "--webhook-certificates",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="serve the admission webhook with tls.crt and tls.key of this folder (default: no webhook)",
    )
    run.add_argument("--webhook-port", type=int, default=9443, help="port of the admission webhook (%(default)s)")
    run.add_argument(
        "--network-policy",
        type=_access,
        default=None,
        metavar="JSON",
        help='create a NetworkPolicy for every service: {"admin": [peer, …], "http": [peer, …], "routes": [name, …]}, '
        "with peers as in `from` of a NetworkPolicy, this operator among the admin peers, and namespaces of Gateways "
        "that routes may lead through (default: no NetworkPolicy)",
    )
    run.add_argument(
        "--allowed",
        type=command.allow_lists,
        default=DEFAULT,
        metavar="JSON",
        help=f"what services may use, such as {EXAMPLE}; * * matches any text, an absent list allows everything "
        "(default: the volume types of pod-security `restricted` and image; everything else)",
    )
    run.add_argument(
        "--no-fixed-user",
        action="store_true",
        help="let the cluster choose user and groups of new pods, as OpenShift requires (default: 65532)",
    )
    run.add_argument(
        "--without-kind",
        action="append",
        default=[],
        choices=[kind.kind for kind in OPTIONAL],
        help="do not use this kind even if the cluster serves it; may be repeated",
    )
    run.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    run.add_argument("--log-format", default="json", choices=("json", "text"), help="format of log lines (%(default)s)")
    run.set_defaults(run=_run_operator)

    made = commands.add_parser("crd", help="write the CustomResourceDefinition")
    made.add_argument("--out", type=Path, help="folder to write it into (default: standard output)")
    made.set_defaults(run=_crd)

    command.add(commands, DEFAULT_IMAGES)
    advise_command.add(commands)
    terminal.add(commands)

    rules = commands.add_parser("rules", help="print the rules of the resolver: what they do, why, and what to do")
    rules.add_argument("id", nargs="?", metavar="ID", help="one rule, as a decision names it (default: every rule)")
    rules.add_argument("-o", "--output", choices=("text", "json"), default="text")
    rules.set_defaults(run=_rules)

    docs = commands.add_parser("docs", help="write the reference pages")
    docs.add_argument("--out", type=Path, default=Path("docs/reference"), help="folder (%(default)s)")
    docs.set_defaults(run=_docs)
    return parser


def _program() -> str:
    """How the user called it: kubectl runs `kubectl graphpod` as the program kubectl-graphpod."""
    return "kubectl graphpod" if Path(sys.argv[0]).name == PLUGIN else "graphpod"


def _access(text: str) -> Access:
    try:
        return Access.read(text)
    except AccessInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _labels(text: str) -> dict[str, str]:
    try:
        return monitor_labels.read(text)
    except monitor_labels.LabelsInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run_operator(arguments: argparse.Namespace) -> int:
    import asyncio
    import logging
    import platform
    import signal
    import uuid

    # The kernel drops a SIGTERM that process 1 of a container has no handler for. The event loop's comes after seconds
    # of imports.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    from graphpod_operator.handlers.admission_server import AdmissionServer, Certificate
    from graphpod_operator.handlers.kopf_operator import Liveness, Serving
    from graphpod_operator.kube.lease import LeaseLost
    from graphpod_operator.manager import run as running
    from graphpod_operator.manager.dual_stack import listen
    from graphpod_operator.manager.event_loop import new_loop
    from graphpod_operator.observe import admin_port
    from graphpod_operator.telemetry import logs

    logs.configure(arguments.log_level, logs.Format(arguments.log_format))
    webhook = liveness = None
    if arguments.webhook_certificates is not None:
        certificate = Certificate(arguments.webhook_certificates)
        webhook = AdmissionServer(arguments.webhook_port, certificate, listen, arguments.allowed)
    if arguments.liveness_port is not None:
        liveness = Liveness(os.environ.get("POD_IP", "localhost"), arguments.liveness_port)
    settings = running.Settings(
        installed=Installation(
            Images(arguments.engine_image, arguments.engine_gpu_image),
            arguments.allowed,
            fixed_user=not arguments.no_fixed_user,
            prometheus=arguments.prometheus_url,
            monitor_labels=arguments.pod_monitor_labels,
            access=arguments.network_policy,
        ),
        # a pod's next container goes on where its last one ended; elsewhere each process has its own
        identity=os.environ.get("POD_UID") or f"{platform.node()}-{uuid.uuid4()}",
        lease_namespace=arguments.lease_namespace,
        port=arguments.port,
        namespaces=tuple(arguments.namespace),
        workers=arguments.workers,
        admin_url=arguments.admin_url or admin_port.DEFAULT_URL,
        without=tuple(kind for kind in OPTIONAL if kind.kind in arguments.without_kind),
        serving=Serving(webhook, liveness),
    )
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(running.run(settings))
    except asyncio.CancelledError:
        return 0  # a signal
    except LeaseLost as error:
        logging.getLogger(__name__).error("watch cache may be stale; exiting", extra={"error": error})
        return 1
    return 0


def _crd(arguments: argparse.Namespace) -> int:
    from graphpod_operator.schema import crd

    if arguments.out is None:
        sys.stdout.write(crd.render())
    else:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / crd.FILE).write_text(crd.render())
    return 0


def _rules(arguments: argparse.Namespace) -> int:
    from graphpod_operator.docs import rule_table

    write = rule_table.as_json if arguments.output == "json" else rule_table.as_text
    try:
        sys.stdout.write(write(arguments.id))
    except rule_table.UnknownRule as error:
        print(f"error: {error}", file=sys.stderr)
        return INVALID
    return 0


def _docs(arguments: argparse.Namespace) -> int:
    from graphpod_operator.docs import reference

    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in reference.pages().items():
        (arguments.out / name).write_text(text)
    return 0

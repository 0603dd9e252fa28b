"""`python3 -m demo up|down`, on a cluster made for it or (`--cluster current`) on the reader's own."""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from demo.chart import NAMESPACE as SYSTEM
from demo.chart import OPERATOR, image_settings, install, wait_operator
from demo.chart import SELECTOR as OPERATOR_SELECTOR
from demo.current.cluster import CurrentContext
from demo.current.consent import confirm
from demo.current.image_source import VARIABLES, Kind, Registry
from demo.current.kubeconfig import Context, current
from demo.final_report import show
from demo.ground import Ground, Source
from demo.images import Nodes, renew
from demo.local import Testbed
from demo.objects import GaveUp
from demo.service import (
    EXAMPLE,
    NAME,
    NAMESPACE,
    SELECTOR,
    apply,
    captured,
    fill_claim,
    stalled,
    wait_condition,
    wait_restarted,
    wait_rollout,
)
from demo.stage_lines import stage
from demo.weights import WeightsError
from testbed import Cluster, TestbedError

CLUSTER = "demo"
OWN, CURRENT = "testbed", "current"
MAKES = (
    f"The demo will make, in the cluster below: the namespaces {SYSTEM} and {NAMESPACE}, graphpod's CRD, ClusterRole "
    f"and operator,\na claim of 1 GiB, a Job that fills it, and a service of 1 CPU and 2 GiB."
)
REMOVES = (
    f"The demo will be removed from the cluster below: the namespaces {SYSTEM} and {NAMESPACE} with what it put into "
    "them,\ngraphpod's CRD and ClusterRole. What others made stays."
)


def main(argv: Sequence[str]) -> int:
    """Exit status: 0, 1 with what went wrong, 130 when interrupted."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    args = _parser().parse_args(argv)
    try:
        args.action(args)
    except (TestbedError, WeightsError, GaveUp) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run it again to go on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m demo",
        description="graphpod on a real cluster, from nothing to an answer: what `make demo` runs.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    up = verbs.add_parser("up", help="cluster, operator, weights, service, answer; run again, it does what is missing")
    up.set_defaults(action=lambda args: bring_up(*_grounds(args)))
    down = verbs.add_parser("down", help="take away what the demo made: its own cluster, or its objects in yours")
    down.set_defaults(action=_down)
    for verb in (up, down):
        verb.add_argument(
            "--cluster",
            choices=(OWN, CURRENT),
            default=OWN,
            help=f"{OWN}: one made for the demo on this machine (default); {CURRENT}: kubectl's current context",
        )
        verb.add_argument(
            "--confirm", metavar="CONTEXT", help=f"with {CURRENT}: its context's name, without a terminal to type it"
        )
    own = up.add_argument_group(f"with --cluster {CURRENT}")
    either = own.add_mutually_exclusive_group()
    either.add_argument(
        "--images", metavar="PREFIX", default="", help="where the images are: PREFIX/operator, /runtime, /demo-weights"
    )
    either.add_argument("--load", choices=("kind",), help="build the images here and `kind load` them into the nodes")
    for target in VARIABLES:
        own.add_argument(f"--{target}-image", metavar="REFERENCE", help="this one by its whole name")
    own.add_argument("--storage-class", metavar="CLASS", default="", help="of the weights' claim (cluster's default)")
    return parser


def bring_up(ground: Ground, source: Source) -> None:
    began = time.monotonic()
    with stage("tools") as now:
        source.begin(now.say)
        now.note(ground.tools(now.say))
    with stage("cluster") as now:
        now.note(ground.prepare(now.say))
    with stage("images") as now:
        images = source.provide(now.say)
        now.note(", ".join(images))
    with stage("chart") as now:
        new = install(ground, *image_settings(images))
        renewed = renew(ground, SYSTEM, OPERATOR, OPERATOR_SELECTOR, images["operator"])
        wait_operator(ground)
        now.note("installed" if new else "new image" if renewed else "unchanged")
    with stage("model") as now:
        new = fill_claim(ground, images["demo-weights"], now.say, ground.storage_class)
        now.note("copied into the claim" if new else "already there")
    with stage("apply") as now:
        now.note(apply(ground, EXAMPLE))
        found = wait_condition(ground, "Accepted", now.progress, limit=60.0)
        if renew(ground, NAMESPACE, NAME, SELECTOR, images["runtime"], retry=stalled(found)):
            wait_restarted(ground)
    with stage("capture") as now:
        now.note(f"{captured(wait_condition(ground, 'GraphsCaptured', now.progress))} graphs")
    with stage("ready") as now:
        wait_rollout(ground)
        found = wait_condition(ground, "Ready", now.progress)
    show(ground, found)
    print(f"\nFrom start to answer: {time.monotonic() - began:.1f} s. It all stays; to go on:\n")
    print("\n".join(ground.next_steps()))


def _grounds(args: argparse.Namespace) -> tuple[Ground, Source]:
    """Where the demo goes, and where its images come from. A reader's cluster has been named when this returns."""
    if args.cluster == OWN:
        cluster = Cluster(CLUSTER)
        return Testbed(cluster), Nodes(cluster)
    context = current(os.environ)
    source = _source(args, context)
    confirm(context, "demo", MAKES, args.confirm)
    return CurrentContext(context, args.storage_class), source


def _source(args: argparse.Namespace, context: Context) -> Source:
    if args.load:
        return Kind.of(context.name)
    named = {target: getattr(args, f"{target.replace('-', '_')}_image") for target in VARIABLES}
    return Registry(args.images, {target: reference for target, reference in named.items() if reference})


def _down(args: argparse.Namespace) -> None:
    ground: Ground
    if args.cluster == OWN:
        ground = Testbed(Cluster(CLUSTER))
    else:
        context = current(os.environ)
        confirm(context, "demo-down", REMOVES, args.confirm)
        ground = CurrentContext(context)
    with stage("down") as now:
        now.note(ground.down(now.say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

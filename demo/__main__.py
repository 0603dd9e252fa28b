"""`python -m demo up|down`."""

import argparse
import sys
import time
from collections.abc import Sequence

from demo.board import stage
from demo.chart import CHART, OPERATOR, install, wait_operator
from demo.chart import NAMESPACE as SYSTEM
from demo.chart import SELECTOR as OPERATOR_SELECTOR
from demo.images import provide, renew
from demo.objects import GaveUp
from demo.service import EXAMPLE, NAME, NAMESPACE, SELECTOR, apply, captured, fill_claim, wait_condition, wait_rollout
from demo.show import show
from demo.weights import WeightsError
from testbed import Cluster, TestbedError, golang, packages

CLUSTER = "demo"


def main(argv: Sequence[str]) -> int:
    """Exit status: 0, 1 with what went wrong, 130 when interrupted."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python -m demo", description="graphpod on a real cluster of this machine.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("up", help="cluster, operator, weights, service, answer").set_defaults(action=up)
    verbs.add_parser("down", help="take the demo's cluster down").set_defaults(action=down)
    try:
        parser.parse_args(argv).action(Cluster(CLUSTER))
    except (TestbedError, WeightsError, GaveUp) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to go on from here", file=sys.stderr)
        return 130
    return 0


def up(cluster: Cluster) -> None:
    began = time.monotonic()
    with stage("tools") as now:
        packages.ensure(now.say)
        now.note(f"{len(golang.build((*golang.NODE_TOOLS, 'helm4'), now.say))} programs")
    with stage("cluster") as now:
        cluster.up(now.say)
        now.note(f"Kubernetes {golang.KUBERNETES}, one node, KUBECONFIG={cluster.kubeconfig}")
    with stage("images") as now:
        ids = provide(cluster, now.say)
        now.note(", ".join(ids))
    with stage("chart") as now:
        new = install(cluster)
        renewed = renew(cluster, SYSTEM, OPERATOR, OPERATOR_SELECTOR, ids["operator"])
        wait_operator(cluster)
        now.note("installed" if new else "new image" if renewed else "unchanged")
    with stage("model") as now:
        now.note("copied into the claim" if fill_claim(cluster, ids["demo-weights"], now.say) else "already there")
    with stage("apply") as now:
        now.note(apply(cluster, EXAMPLE))
        wait_condition(cluster, "Accepted", now.progress, limit=60.0)
        renew(cluster, NAMESPACE, NAME, SELECTOR, ids["runtime"])
    with stage("capture") as now:
        now.note(f"{captured(wait_condition(cluster, 'GraphsCaptured', now.progress))} graphs")
    with stage("ready") as now:
        wait_rollout(cluster)
        found = wait_condition(cluster, "Ready", now.progress)
    show(cluster, found)
    print(f"\nFrom start to answer: {time.monotonic() - began:.1f} s. The cluster stays up; to go on:\n")
    print(next_steps(cluster))


def next_steps(cluster: Cluster) -> str:
    """Three commands for a shell that knows nothing of the testbed."""
    kubectl = f"KUBECONFIG={cluster.kubeconfig} {cluster.binary('kubectl')} -n {NAMESPACE}"
    return "\n".join(
        [
            f"{kubectl} describe gisvc {NAME}",
            f"{kubectl} get --raw /api/v1/namespaces/{NAMESPACE}/services/{NAME}:http/proxy/v1/models",
            f"make -C {CHART.parent.parent} demo-down",
        ]
    )


def down(cluster: Cluster) -> None:
    with stage("down") as now:
        cluster.down(now.say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

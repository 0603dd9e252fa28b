"""`graphpod explain gisvc/NAME` against the real API server: planned, running, and what adopting would change."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.api.operator.explained import explained
from tests.api.operator.process import IMAGES, MAIN, Operator
from tests.api.operator.test_upgrade import NEXT_VERSION
from tests.places import Place


def test_a_live_service_is_explained_beside_what_its_status_says(applied: Place) -> None:
    done = explained(applied, "demo")
    assert done.returncode == 0, done.stderr
    assert "prefill   planned Breakable, running nothing yet" in done.stdout
    assert "Adopting the same rules changes nothing in the engine's configuration." in done.stdout
    told = json.loads(explained(applied, "demo", "-o", "json").stdout)
    assert told["live"]["configHash"] == told["configHash"] == applied.status()["graph"]["configHash"]


def test_the_program_of_a_next_version_tells_what_it_would_make_otherwise(applied: Place) -> None:
    """Before an upgrade: beside the image nothing but what the next version changes, by path."""
    done = explained(applied, "demo", program=(sys.executable, "-c", f"{NEXT_VERSION}\n{MAIN}"))
    assert done.returncode == 0, done.stderr
    told = done.stdout.partition("In the cluster")[2].splitlines()
    (pinned,) = applied.kubectl("get", "controllerrevisions", "-o", "name").split()
    assert f"  pinned    {pinned.partition('/')[2]}, one of 1 kept; image {IMAGES.cpu}" in told
    at = told.index("  This program would change this part of the pinned rendering, besides the image:")
    assert told[at + 1 : at + 7] == [
        "    engine.graph.decode.sizes",
        "      - 4 of up to 8 sequences: 1 2 4 8",
        "      + 3 of up to 3 sequences: 1 2 3",
        "    pod.terminationGracePeriodSeconds",
        "      - 45 s",
        "      + 46 s",
    ]
    assert "kubectl annotate" not in done.stdout, "the operator that runs offers nothing"
    same = explained(applied, "demo").stdout
    assert "This program would create the same pods, except for their image." in same


@pytest.fixture
def still(applied: Place, operator: Operator) -> Iterator[Place]:
    """A service whose operator is away meanwhile, and mends nothing."""
    operator.stop()
    yield applied
    operator.start()


@pytest.mark.parametrize("gone", ["/status/graph", "/status"])
def test_a_status_somebody_cut_down_is_explained_as_far_as_it_goes(still: Place, gone: str) -> None:
    patch = json.dumps([{"op": "remove", "path": gone}])
    still.kubectl("patch", "gisvc", "demo", "--subresource=status", "--type=json", "-p", patch)
    done = explained(still, "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "prefill   planned unknown, running nothing yet" in done.stdout
    assert "  pinned    demo-" in done.stdout


def test_a_service_that_is_not_there_is_called_that(place: Place) -> None:
    done = explained(place, "nobody")
    assert done.returncode == 2
    where = f"namespace {place.namespace}; for another namespace: -n NAMESPACE"
    assert done.stderr == f"error: gisvc/nobody does not exist in {where}\n"

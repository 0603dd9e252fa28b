"""The annotation graphpod.dev/paused: observed and reported, and nothing written but the status."""

from collections.abc import Callable

from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import Place

PAUSED = "graphpod.dev/paused"


def test_a_service_that_is_made_paused_waits_for_the_annotation_to_go(
    operator: Operator, place: Place, eventually
) -> None:
    place.apply(metadata={"annotations": {PAUSED: "true"}})
    eventually(place.reached("Accepted", "True", "Paused"))
    assert place.names("deployments,services,configmaps,serviceaccounts") == []
    place.kubectl("annotate", "gisvc", "demo", f"{PAUSED}-")
    eventually(place.reached("Accepted", "True", "Accepted"))
    eventually(lambda: len(place.pods()) == 1)


def test_drift_of_a_paused_service_is_left_until_it_goes_on(
    quiet: Place, eventually, settled: Callable[[], None], audit: Audit
) -> None:
    quiet.kubectl("annotate", "gisvc", "demo", f"{PAUSED}=true")
    eventually(quiet.reached("Accepted", "True", "Paused"))
    settled()
    mark = audit.mark()
    quiet.drop("service", "demo")
    settled()
    written = audit.since(mark).by(USER).of(quiet.namespace).writes()
    assert {request.kind for request in written} <= {"inferenceservices/status", "events"}
    quiet.kubectl("annotate", "gisvc", "demo", f"{PAUSED}-")
    eventually(lambda: quiet.names("services"))

"""A service that uses every built field: what it makes has the server's normal form, so nothing is written twice."""

from collections.abc import Callable
from pathlib import Path

import yaml

from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import Place

SPEC = Path(__file__).parents[2] / "unit" / "operator" / "goldens" / "everything.in.yaml"


def test_every_built_field_is_applied_once_and_stays_without_a_write(
    operator: Operator, place: Place, eventually, settled: Callable[[], None], audit: Audit
) -> None:
    place.apply(**yaml.safe_load(SPEC.read_text()))
    eventually(place.reached("Accepted", "True", "Accepted"))
    # its PriorityClass is not there, which the Deployment tells in its own time
    eventually(place.reached("WorkloadAvailable", "False", "PlacementRefused"))
    settled()
    mark = audit.mark()
    place.label("gisvc", "demo", {"touched": "yes"})
    settled()
    assert audit.since(mark).by(USER).of(place.namespace).writes() == ()
    assert operator.said("the API server changed fields we applied", place) == []

"""examples/ works today; examples/planned/ is refused, and the first lines of each file say what is missing."""

from pathlib import Path

import pytest
import yaml

from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired, Refused
from graphpod_operator.plan.plan_input import PlanInput
from tests.unit.operator.objects import INSTALLED, UID

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_works_exactly_when_it_does_not_lie_among_the_planned_ones(example: Path) -> None:
    text = example.read_text()
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    manifest = yaml.safe_load(text)
    manifest["metadata"] |= {"namespace": "ns", "uid": UID, "resourceVersion": "1", "generation": 1}
    outcome = desire(PlanInput(Service.of(manifest), INSTALLED))
    if example.parent.name == "planned":
        assert "Not built in this version:" in comment
        assert isinstance(outcome, Refused)
        assert outcome.reason is Reason.FeatureNotBuilt
    else:
        assert "uilt" not in comment
        assert isinstance(outcome, Desired), outcome
    assert manifest["metadata"]["name"] == example.stem

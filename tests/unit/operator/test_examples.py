"""Each example says what it shows and whether it is built, and the operator agrees."""

from pathlib import Path

import pytest
import yaml

from graphpod_operator import observe
from graphpod_operator.plan import Desired, Refused, desire
from graphpod_operator.reasons import Reason
from tests.unit.operator.objects import IMAGES, UID

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_built_exactly_when_it_says_so(example: Path) -> None:
    text = example.read_text()
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    manifest = yaml.safe_load(text)
    manifest["metadata"] |= {"namespace": "ns", "uid": UID, "resourceVersion": "1", "generation": 1}
    outcome = desire(observe.Service.of(manifest), IMAGES)
    if "Not built in this version:" in comment:
        assert isinstance(outcome, Refused)
        assert outcome.reason is Reason.FeatureNotBuilt
    else:
        assert "Built." in comment
        assert isinstance(outcome, Desired), outcome
    assert manifest["metadata"]["name"] == example.stem

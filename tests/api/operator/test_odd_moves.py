"""Legal moves of users that are rare: each is named in the status, or put back, and costs few writes."""

import pytest

from graphpod_operator.api.names import MANAGED_BY, OWNER_LABEL
from tests.api.operator.test_status import ready, the_pod  # noqa: F401
from tests.places import Place

COUNTED = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


@pytest.mark.parametrize("label", [MANAGED_BY[0], OWNER_LABEL])
def test_a_serving_pod_that_lost_our_label_is_named_and_found_again_with_it(
    ready: Place,  # noqa: F811
    eventually,
    label: str,
) -> None:
    pod = the_pod(ready)
    name, value = pod["metadata"]["name"], pod["metadata"]["labels"][label]
    ready.merge("deployment", "demo", {"status": dict.fromkeys(COUNTED, 1)}, "status")
    ready.label("pod", name, {label: None})
    told = eventually(ready.reached("WorkloadAvailable", "False", "Starting"))
    assert "1 are available, and 0 of them have the labels" in told
    ready.label("pod", name, {label: value})
    eventually(ready.reached("Ready", "True", "Ready"))

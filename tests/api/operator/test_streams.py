"""Streamed weights against the API server: pods at once, without claim or Job, and what the schema refuses."""

from typing import Any

import pytest

from testbed import TestbedError
from tests.api.operator.downloads import jobs
from tests.api.operator.pods import crashed, set_status
from tests.api.operator.process import Operator
from tests.eventually import Eventually
from tests.places import Place

MODEL: dict[str, Any] = {"uri": "s3://models/tiny", "stream": True, "secretRef": {"name": "bucket"}}
CAUSE = (
    "Unauthorized: s3://models/tiny: the store refuses these credentials, or wants some (403); put valid "
    "credentials into the Secret that spec.model.secretRef names"
)


def test_pods_are_created_at_once_and_say_why_their_source_gives_nothing(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply(model=MODEL)
    (pod,) = eventually(lambda: place.all("pod", "app.kubernetes.io/instance=demo"))
    assert not jobs(place)
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes["model"]["emptyDir"] == {"sizeLimit": "2Gi"}
    assert volumes["model-credentials"]["secret"]["secretName"] == "bucket"
    set_status(place.cluster, pod, crashed(33, f"SourceFailed: {CAUSE}"))
    message = eventually(place.reached("ModelAvailable", "False", "SourceFailed"))
    assert message.endswith(CAUSE)
    place.remove()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uri": "oci://reg.example/team/tiny:v1"}, "spec.model.stream is for safetensors"),
        ({"uri": "s3://models/tiny.gguf"}, "spec.model.stream is for safetensors"),
        ({"cache": {"size": "1Gi"}}, "spec.model.stream is for safetensors"),
        ({"stream": False}, "spec.model.cache is required for downloads"),
    ],
)
def test_the_api_server_refuses_what_cannot_be_streamed(
    operator: Operator, place: Place, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(TestbedError, match=words):
        place.apply(model=MODEL | change)

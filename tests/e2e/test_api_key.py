"""Contract 22: a key that clients have to send, in a Secret that the pod mounts and the operator never reads.

The tests of this file are one story in its order: refused, answered, another key without a restart.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import yaml

from demo.answer import address
from demo.chart import NAMESPACE as SYSTEM
from demo.chart import OPERATOR
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from testbed.reach import takes_connections
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place

NAME, SECRET = "keyed", "keyed-api-key"
START = 240.0  # s for an engine to start beside others on two cores
KEY_COMES = 120.0  # s, as examples/api-key.yaml promises
FIRST, SECOND = "sk-of-the-test-first", "sk-of-the-test-second"


def write(place: Place, key: str) -> None:
    """The Secret's owner gives it this content."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"token": key}}
    place.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(secret))


@pytest.fixture(scope="module")
def keyed(installed: Cluster) -> Iterator[Place]:
    """A service with a start of seconds that asks for a key."""
    place = Place(installed, NAMESPACE)
    write(place, FIRST)
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "500m"
    spec["engine"] = {**spec.get("engine", {}), "apiKeySecretRef": {"name": SECRET, "key": "token"}}
    place.apply(NAME, **spec)
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)
    place.kubectl("delete", "secret", SECRET)


def client(place: Place, key: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{address(place.cluster, NAMESPACE, NAME)}/v1", api_key=key, timeout=120, max_retries=0
    )


def pod(place: Place) -> dict[str, Any]:
    (found,) = place.pods(NAME)
    return dict(found)


def runs(place: Place) -> tuple[str, str, int]:
    """What would be another after a restart of anything."""
    found = pod(place)
    (container,) = found["status"]["containerStatuses"]
    return found["metadata"]["uid"], container["containerID"], container["restartCount"]


def metrics(place: Place) -> str:
    """The pod's exposition, asked for without a key."""
    name = pod(place)["metadata"]["name"]
    return place.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:8001/proxy/metrics")


def test_without_the_key_a_client_is_told_401_as_openai_tells_it(
    keyed: Place, home: Place, eventually: Eventually
) -> None:
    eventually(keyed.reached("Ready", "True", "Ready", NAME), timeout=START)
    eventually(lambda: takes_connections(address(keyed.cluster, NAMESPACE, NAME)))
    for guess in ("none", SECOND, f"{FIRST}x"):
        with client(keyed, guess) as stranger, pytest.raises(openai.AuthenticationError) as refused:
            stranger.models.list()
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
        assert refused.value.type == "invalid_request_error"
        assert guess not in refused.value.response.text


def test_with_the_key_it_is_answered(keyed: Place, home: Place) -> None:
    with client(keyed, FIRST) as known:
        assert [model.id for model in known.models.list()] == [NAME]
        said = known.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    assert "Paris" in said.choices[0].text


def test_another_content_of_the_secret_counts_without_a_restart(
    keyed: Place, home: Place, eventually: Eventually
) -> None:
    before, looks = runs(keyed), itertools.count()
    write(keyed, SECOND)

    def counts() -> bool:
        # the kubelet looks at a pod's volumes once a minute, and at once when the pod changes
        name = pod(keyed)["metadata"]["name"]
        keyed.kubectl("annotate", "pod", name, f"stub.example.com/look={next(looks)}", "--overwrite")
        try:
            with client(keyed, SECOND) as known:
                return bool(known.models.list().data)
        except openai.AuthenticationError:
            return False

    eventually(counts, timeout=KEY_COMES)
    with client(keyed, FIRST) as late, pytest.raises(openai.AuthenticationError):
        late.models.list()
    assert runs(keyed) == before


def test_probes_metrics_and_the_operator_need_no_key_and_nobody_but_the_kubelet_read_the_secret(
    keyed: Place, home: Place
) -> None:
    assert 'code="401"' in metrics(keyed)
    for key in (FIRST, SECOND):
        assert key not in metrics(keyed)
        assert key not in keyed.kubectl("logs", pod(keyed)["metadata"]["name"])
    assert keyed.condition("Ready", NAME)[:2] == ("True", "Ready")
    assert runs(keyed)[2] == 0
    trail = Audit(keyed.cluster.audit_log).since()
    readers = {one.user for one in trail if one.resource == "secrets" and one.name == SECRET and not one.writes}
    assert {user.rpartition(":")[0] for user in readers} == {"system:node"}
    operator = trail.by(f"system:serviceaccount:{SYSTEM}:{OPERATOR}")
    assert len(operator) > 0
    assert [one for one in operator if one.resource == "secrets"] == []

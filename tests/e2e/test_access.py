"""Who may ask a service. Contract 22: a key that clients have to send, in a Secret that the pod mounts and the operator
never reads. Contract 12: the policy, enforced: who may ask is answered, nobody else is, and an operator that is locked
out says so, without calling the service anything but unknown.

The tests of this file are one story in its order: refused, answered, another key without a restart; let in, locked out.
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
from demo.ground import Image
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from testbed.nodes.policy import enforce
from testbed.reach import takes_connections
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place

NAME, SECRET = "guarded", "guarded-api-key"
START = 240.0  # s for an engine to start beside others on two cores
KEY_COMES = 120.0  # s, as examples/api-key.yaml promises
FIRST, SECOND = "sk-of-the-test-first", "sk-of-the-test-second"
MONITORING = "monitoring"  # the chart's default
PORTS = (":8000/v1/models", ":8001/metrics")
ASK = f"""
import sys, urllib.request as u
asked = u.Request(sys.argv[1], headers={{"authorization": "Bearer {SECOND}"}})
print(u.urlopen(asked, timeout=float(sys.argv[2])).status)
"""
LET_IN, KEPT_OUT = 30.0, 2.0  # s to wait for an answer that has to come, on a busy machine, and for one that must not


def write(place: Place, key: str) -> None:
    """The Secret's owner gives it this content."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"token": key}}
    place.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(secret))


@pytest.fixture(scope="module")
def guarded(installed: Cluster) -> Iterator[Place]:
    """A service of one replica with a start of seconds that asks for a key."""
    place = Place(installed, NAMESPACE)
    write(place, FIRST)
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [16], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "500m"
    spec["engine"] = {**spec.get("engine", {}), "apiKeySecretRef": {"name": SECRET, "key": "token"}}
    place.apply(NAME, **spec)
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)
    place.kubectl("delete", "secret", SECRET)


@pytest.fixture(scope="module")
def clients(installed: Cluster, loaded: dict[str, Image]) -> Iterator[dict[str, Place]]:
    """A pod in the service's namespace, one in monitoring's, one in a stranger's."""
    places = {name: Place(installed, name) for name in (NAMESPACE, MONITORING, "strangers")}
    for name, place in places.items():
        if name != NAMESPACE:
            place.create()
        # before that a bare pod is refused, and nobody asks again for it
        place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        place.kubectl("create", "-f", "-", input=json.dumps(asker(loaded["operator"].reference)))
    for place in places.values():
        place.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=90s", timeout=100)
    yield places
    for name, place in places.items():
        place.kubectl("delete", "pod", "client", "--now", "--wait=false")
        if name != NAMESPACE:
            place.delete()


def asker(image: str) -> dict[str, Any]:
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}


def answers(place: Place, address: str, patience: float) -> bool:
    """Whether a client there gets an answer, or none within so many seconds."""
    script = f"try:\n    exec({ASK!r})\nexcept OSError as error:\n    print(error)"
    said = place.kubectl("exec", "client", "--", "python3", "-c", script, f"http://{address}", str(patience)).strip()
    assert said in ("200", "timed out", "<urlopen error timed out>"), said
    return said == "200"


def answered(clients: dict[str, Place], ip: str, wanted: dict[str, list[bool]]) -> dict[str, list[bool]]:
    """Who gets an answer from which of PORTS; who is to get one has the time for it."""
    return {
        name: [
            answers(clients[name], ip + port, LET_IN if comes else KEPT_OUT)
            for port, comes in zip(PORTS, row, strict=True)
        ]
        for name, row in wanted.items()
    }


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
    guarded: Place, home: Place, eventually: Eventually
) -> None:
    eventually(guarded.reached("Ready", "True", "Ready", NAME), timeout=START)
    eventually(lambda: takes_connections(address(guarded.cluster, NAMESPACE, NAME)))
    for guess in ("none", SECOND, f"{FIRST}x"):
        with client(guarded, guess) as stranger, pytest.raises(openai.AuthenticationError) as refused:
            stranger.models.list()
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
        assert refused.value.type == "invalid_request_error"
        assert guess not in refused.value.response.text


def test_with_the_key_it_is_answered(guarded: Place, home: Place) -> None:
    with client(guarded, FIRST) as known:
        assert [model.id for model in known.models.list()] == [NAME]
        said = known.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    assert "Paris" in said.choices[0].text


def test_another_content_of_the_secret_counts_without_a_restart(
    guarded: Place, home: Place, eventually: Eventually
) -> None:
    before, looks = runs(guarded), itertools.count()
    write(guarded, SECOND)

    def counts() -> bool:
        # the kubelet looks at a pod's volumes once a minute, and at once when the pod changes
        name = pod(guarded)["metadata"]["name"]
        guarded.kubectl("annotate", "pod", name, f"stub.example.com/look={next(looks)}", "--overwrite")
        try:
            with client(guarded, SECOND) as known:
                return bool(known.models.list().data)
        except openai.AuthenticationError:
            return False

    eventually(counts, timeout=KEY_COMES)
    with client(guarded, FIRST) as late, pytest.raises(openai.AuthenticationError):
        late.models.list()
    assert runs(guarded) == before


def test_probes_metrics_and_the_operator_need_no_key_and_nobody_but_the_kubelet_read_the_secret(
    guarded: Place, home: Place
) -> None:
    assert 'code="401"' in metrics(guarded)
    for key in (FIRST, SECOND):
        assert key not in metrics(guarded)
        assert key not in guarded.kubectl("logs", pod(guarded)["metadata"]["name"])
    assert guarded.condition("Ready", NAME)[:2] == ("True", "Ready")
    assert runs(guarded)[2] == 0
    trail = Audit(guarded.cluster.audit_log).since()
    readers = {one.user for one in trail if one.resource == "secrets" and one.name == SECRET and not one.writes}
    assert {user.rpartition(":")[0] for user in readers} == {"system:node"}
    operator = trail.by(f"system:serviceaccount:{SYSTEM}:{OPERATOR}")
    assert len(operator) > 0
    assert [one for one in operator if one.resource == "secrets"] == []


def test_what_the_policy_lets_in_is_answered_and_nothing_else(
    guarded: Place, home: Place, clients: dict[str, Place]
) -> None:
    serving = pod(guarded)
    ip = serving["status"]["podIP"]
    everybody = {name: [True, True] for name in clients}
    assert answered(clients, ip, everybody) == everybody, "nothing is enforced yet"
    assert serving["metadata"]["name"] in enforce(guarded.cluster)
    few = {NAMESPACE: [True, False], MONITORING: [False, True], "strangers": [False, False]}
    assert answered(clients, ip, few) == few
    assert guarded.condition("Ready", NAME)[:2] == ("True", "Ready"), "the kubelet's probes are let in"


def test_an_operator_that_is_locked_out_says_unknown_and_names_the_policy(
    guarded: Place, home: Place, eventually: Eventually
) -> None:
    """Somebody's hand on the policy, while the service is paused, and a pod that starts under it."""
    guarded.kubectl("annotate", "gisvc", NAME, "graphpod.dev/paused=true")
    # services and their objects are watched apart: before it knows of the pause the operator would put the policy back
    eventually(guarded.reached("Accepted", "True", "Paused", NAME))
    nobody = [
        {"op": "replace", "path": "/spec/ingress/1/from", "value": [{"podSelector": {"matchLabels": {"no": "1"}}}]}
    ]
    guarded.kubectl("patch", "networkpolicy", NAME, "--type=json", "-p", json.dumps(nobody))
    before = pod(guarded)["metadata"]["name"]
    guarded.kubectl("delete", "pod", before, "--now", timeout=90)

    def started() -> bool:
        replacements = {one["metadata"]["name"] for one in guarded.pods(NAME)} - {before}
        return replacements != set() and replacements <= enforce(guarded.cluster)

    eventually(started, timeout=60)
    told = eventually(guarded.reached("GraphsCaptured", "Unknown", "EngineUnreachable", NAME), timeout=START)
    assert "NetworkPolicy" in told
    assert guarded.condition("Ready", NAME)[0] != "True"

    guarded.kubectl("annotate", "gisvc", NAME, "graphpod.dev/paused-")
    eventually(lambda: '"no"' not in json.dumps(guarded.get("networkpolicy", NAME)["spec"]["ingress"][1]["from"]))
    enforce(guarded.cluster)
    eventually(guarded.reached("Ready", "True", "Ready", NAME), timeout=START)

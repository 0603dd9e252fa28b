"""Our canonical quantities are the API server's."""

import json

from graphpod_operator.api import quantity
from tests.places import Place

NUMBERS = ("0", "1", "0.5", "1.5", "12.345", "1000", "1024", "1536", "2000000", "0.001", "123456789")
SUFFIXES = ("", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "E+9", "e10", "e0")


def stored(place: Place, amounts: list[str]) -> list[str]:
    """The amounts as the server would keep them, each as the CPU limit of a container of its own."""
    containers = [
        {"name": f"c{index}", "image": "x", "resources": {"limits": {"cpu": amount}}}
        for index, amount in enumerate(amounts)
    ]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "quantities"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    said = place.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(deployment))
    kept = json.loads(said)["spec"]["template"]["spec"]["containers"]
    return [container["resources"]["limits"]["cpu"] for container in kept]


def test_the_server_leaves_our_form_of_a_quantity_alone(place: Place) -> None:
    ours = [quantity.canonical(number + suffix) for number in NUMBERS for suffix in SUFFIXES]
    assert stored(place, ours) == ours


def test_the_server_reads_the_users_form_and_ours_as_the_same_amount(place: Place) -> None:
    texts = [number + suffix for number in NUMBERS for suffix in SUFFIXES if not suffix.endswith("i")]
    kept = stored(place, texts)
    assert [quantity.canonical(text) for text in kept] == [quantity.canonical(text) for text in texts]

"""A cluster without any IPv4: nodes, pods, services and the API server have IPv6 addresses alone."""

import ipaddress
from collections.abc import Iterator

import pytest
import yaml
from openai import OpenAI

from demo.answer import QUESTION, TOKENS, address
from demo.chart import NAMESPACE as SYSTEM
from demo.chart import SELECTOR as OPERATOR
from demo.chart import install, wait_operator
from demo.images import layouts, provide
from demo.local import Testbed
from demo.objects import conditions, listed
from demo.service import EXAMPLE, NAME, NAMESPACE, SELECTOR, fill_claim, wait_condition
from testbed import Cluster
from testbed.host.network import Family
from testbed.nodes.kept_layers import keep
from tests.clusters import own_cluster
from tests.places import Place


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node with the chart and the weights of the demo."""
    keep(layouts(print).values())
    with own_cluster("test-ipv6", "node", family=Family.IPV6) as cluster:
        images = provide(cluster, print)
        install(Testbed(cluster))
        wait_operator(cluster)
        fill_claim(cluster, images["demo-weights"], print)
        yield cluster


def ips(cluster: Cluster, namespace: str, selector: str) -> list[str]:
    """Every address of these pods."""
    found = listed(cluster, "pods", "-n", namespace, "-l", selector)
    return [one["ip"] for pod in found for one in pod["status"]["podIPs"]]


def test_a_service_gets_ready_and_answers_over_ipv6_alone(cluster: Cluster) -> None:
    """Ready: the kubelet's probes and the operator's reading of /warmup reached the pod at its IPv6 address."""
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}  # a start in seconds
    Place(cluster, NAMESPACE).apply(NAME, **spec)
    service = wait_condition(cluster, "Ready", lambda _: None)
    assert conditions(service)["GraphsCaptured"]["status"] == "True"
    found = ips(cluster, NAMESPACE, SELECTOR) + ips(cluster, SYSTEM, OPERATOR)
    assert {ipaddress.ip_address(ip).version for ip in found} == {6}
    with OpenAI(base_url=f"{address(cluster)}/v1", api_key="none", timeout=120, max_retries=0) as client:
        messages = [{"role": "user", "content": QUESTION}]
        answer = client.chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=TOKENS)
    assert "Paris" in (answer.choices[0].message.content or "")

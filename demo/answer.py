"""One question to the service, through its Service address, as any OpenAI client would ask it."""

import json
import urllib.error
import urllib.request
from typing import Any

from demo.objects import GaveUp, read
from demo.service import NAME, NAMESPACE
from testbed import Cluster

QUESTION = "What is the capital of France?"
TOKENS = 32
ANSWER_LIMIT = 120.0  # s


def address(cluster: Cluster) -> str:
    """http://CLUSTER-IP of the Service; the testbed's host has a route to it."""
    service = read(cluster, "service", NAME, NAMESPACE)
    if service is None:
        raise GaveUp(f"service {NAMESPACE}/{NAME} does not exist: kubectl -n {NAMESPACE} describe gisvc {NAME}")
    return f"http://{service['spec']['clusterIP']}"


def body(question: str = QUESTION) -> dict[str, Any]:
    """A greedy chat request."""
    return {
        "model": NAME,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": TOKENS,
    }


def ask(base: str, question: str = QUESTION) -> str:
    """The answer's text. Raises GaveUp with the server's words when there is none."""
    request = urllib.request.Request(
        f"{base}/v1/chat/completions",
        data=json.dumps(body(question)).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        raise GaveUp(f"{request.full_url}: {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise GaveUp(f"{request.full_url}: {error}; is the pod ready? kubectl -n {NAMESPACE} get pods") from error

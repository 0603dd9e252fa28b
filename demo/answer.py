"""One question to the service, as any OpenAI client would ask it."""

import json
import urllib.error
import urllib.request
from typing import Any

from demo.ground import Kubectl
from demo.objects import GaveUp, read
from demo.service import NAME, NAMESPACE

QUESTION = "What is the capital of France?"
TOKENS = 32
ANSWER_LIMIT = 120.0  # s


def address(cluster: Kubectl, namespace: str = NAMESPACE, service: str = NAME) -> str:
    """http://CLUSTER-IP of the Service, for a machine that has a route to it."""
    found = read(cluster, "service", service, namespace)
    if found is None:
        raise GaveUp(f"service {namespace}/{service} does not exist: kubectl -n {namespace} describe gisvc {service}")
    ip = found["spec"]["clusterIP"]
    return f"http://[{ip}]" if ":" in ip else f"http://{ip}"


def curl(base: str, question: str = QUESTION) -> str:
    """The command that sends the same request from a person's shell."""
    return f"curl {base}/v1/chat/completions -H 'content-type: application/json' -d '{json.dumps(body(question))}'"


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
        if error.code == 401:
            raise GaveUp(
                f"{request.full_url}: 401: the service has an API key, and the demo sends none; remove "
                f"spec.engine.apiKeySecretRef: kubectl -n {NAMESPACE} edit gisvc {NAME}"
            ) from error
        raise GaveUp(f"{request.full_url}: {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise GaveUp(f"{request.full_url}: {error}; is the pod ready? kubectl -n {NAMESPACE} get pods") from error

"""External metrics: what a test said is what an autoscaler reads, by name and label, over TLS."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from stubs import certificate, external_metrics
from stubs.external_metrics import ROOT, ExternalMetrics
from stubs.faults.fault import FaultError
from stubs.web import Asked


def read(metrics: ExternalMetrics, path: str, query: str = "") -> tuple[int, Any]:
    reply = metrics.answer(Asked("GET", ROOT + path, query=query))
    return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("said", "quantity"), [(b"7", "7"), (b"1.5", "1.5"), (b'"1500m"', "1500m"), (b'{"value": 3}', "3")]
)
def test_a_metric_is_worth_what_was_said(said: bytes, quantity: str) -> None:
    metrics = ExternalMetrics()
    metrics.put("a/waiting", said)
    status, found = read(metrics, "/namespaces/a/waiting")
    assert (status, found["kind"]) == (200, "ExternalMetricValueList")
    assert [(i["metricName"], i["value"]) for i in found["items"]] == [("waiting", quantity)]


def test_labels_select() -> None:
    metrics = ExternalMetrics()
    metrics.put("a/waiting", b'{"value": 3, "labels": {"queue": "x", "zone": "1"}}')
    counts = {
        selector: len(read(metrics, "/namespaces/a/waiting", f"labelSelector={selector}")[1]["items"])
        for selector in ("", "queue%3Dx", "queue%3Dx%2Czone%3D1", "queue%3Dy", "other%3Dx")
    }
    assert list(counts.values()) == [1, 1, 1, 0, 0]


def test_a_metric_is_forgotten_and_discovery_names_the_others() -> None:
    metrics = ExternalMetrics()
    metrics.put("a/one", b"1")
    metrics.put("b/two", b"2")
    assert metrics.delete("a/one", b"")
    assert not metrics.delete("a/one", b"")
    assert read(metrics, "/namespaces/a/one")[1]["reason"] == "NotFound"
    assert [r["name"] for r in read(metrics, "")[1]["resources"]] == ["two"]


@pytest.mark.parametrize(("place", "body"), [("waiting", b"1"), ("a/b/c", b"1"), ("a/b", b"[]"), ("a/b", b'{"v": 1}')])
def test_what_is_no_metric_is_refused(place: str, body: bytes) -> None:
    with pytest.raises(FaultError):
        ExternalMetrics().put(place, body)


def test_over_tls_it_is_who_its_certificate_says(tmp_path: Path) -> None:
    pair = certificate.make(["IP:127.0.0.1"])
    (tmp_path / "pem").write_bytes(pair.key + pair.certificate)
    trust = ssl.create_default_context(cadata=pair.certificate.decode())
    with external_metrics.serve(tmp_path / "pem").serving() as stub:
        put = urllib.request.Request(f"{stub.control_url}/metrics/a/waiting", b"5", method="PUT")
        urllib.request.urlopen(put, timeout=10).close()
        url = f"{stub.url}{ROOT}/namespaces/a/waiting"
        with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
            assert json.load(answer)["items"][0]["value"] == "5"
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(url, timeout=10)

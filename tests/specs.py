"""Specs made from the schema: for each field, values at, inside and outside the bounds of each of its keywords."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

from graphpod_operator.schema import crd

Schema = dict[str, Any]

SPEC: Schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

WHOLE: dict[str, Any] = {
    "spec": {"model": {"uri": "pvc://c"}},
    "spec.model": {"uri": "pvc://c"},
    "spec.model.cache": {"size": "1Gi"},
    "spec.model.secretRef": {"name": "a"},
    "spec.engine.speculative": {"method": "Ngram"},
    "spec.engine.hostCache": {"size": "1Gi"},
    "spec.engine.hostCache.file": {"path": "/a/b", "size": "1Gi"},
    "spec.engine.imagePullSecrets[]": {"name": "a"},
    "spec.engine.apiKeySecretRef": {"name": "a"},
    "spec.engine.tlsSecretRef": {"name": "a"},
    "spec.engine.cors": {"allowOrigins": ["http://a"]},
    "spec.engine.tracing": {"endpoint": "http://a:4318"},
    "spec.engine.cpuOffload": {"size": "1Gi"},
    "spec.engine.lora[]": {"name": "a", "uri": "pvc://a"},
    "spec.placement.tolerations[]": {"key": "k", "effect": "NoExecute"},
    "spec.placement.topologySpread[]": {"topologyKey": "k"},
    "spec.networking.route": {"parentRefs": [{"name": "a"}]},
    "spec.networking.route.parentRefs[]": {"name": "a"},
    "spec.rollout": {"strategy": "Replace"},
    "spec.autoscaling": {"max": 1000, "target": 4},
    "spec.parallelism": {"expert": 2},
    "spec.podTemplate": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]},
    "spec.podTemplate.env[]": {"name": "A"},
    "spec.podTemplate.volumes[]": {"name": "a"},
    "spec.podTemplate.volumeMounts[]": {"name": "a", "mountPath": "/v"},
}
"""Valid objects to vary one field of, where the required fields alone are not one."""

BESIDE: dict[str, Any] = {
    "spec.engine.sleepAfter": {"sleep": True},
    "spec.engine.speculative.draftModel": {"method": "Eagle"},
    "spec.engine.speculative.draftTokens": {"method": "Mtp", "steps": 4, "topk": 16},
    "spec.model.cache": {"uri": "hf://org/name"},
    "spec.model.secretRef": {"uri": "hf://org/name", "cache": {"size": "1Gi"}},
    "spec.model.stream": {"uri": "s3://bucket/name"},
    "spec.model.sha256": {"uri": "https://host/model.tar", "cache": {"size": "1Gi"}},
    "spec.monitoring.labels": {"enabled": True},
    "spec.parallelism.tensor": {"expert": 1},
    "spec.parallelism.pipeline": {"expert": 1},
    "spec.parallelism.nodes": {"expert": 1, "pipeline": 2},
}
"""What a field needs beside it."""

ELSEWHERE: dict[str, Any] = {
    "spec.engine.hostCache.file": {
        "podTemplate": {
            "volumes": [{"name": "a", "emptyDir": {}}],
            "volumeMounts": [{"name": "a", "mountPath": "/a"}],
        }
    }
}
"""What a field, and each in it, needs elsewhere in the spec."""

TEXTS = (
    "", "a", "b", "A b", "-a", "a/b", "/", "/a/b", "/a/", "/a/../b", "/model/x", "/etc", "a\n", "é", "0", "-1", "1.5",
    "1e3", "1e9", "0e9", "1E+3", "1e19", "1e", "1K",
    "1Gi", "0Gi", "1Ei", "0.0000000001", "999999999999999", "1000000000000000",
    "https://a", "5s", "200ms", "1d", "0s", "59s", "1m", "1.5h", "168h", "169h", "0.001ms", "pvc://c",
    "pvc://c/", "pvc://c/d", "pvc://c/.d", "pvc://c\n", "hf://o/n@r", "hf://o", "s3://b/k", "gs://b", "az://c/d/",
    "oci://r/a:t", "oci://r/a", "http://x", "HOME", "config", "graphpod.dev/x",
    "1P", "64Mi", "1048575", "64Ti", "65Ti", "/usr", "/usr/lib/x", "/usrx", "HTTP://///:::", "a b", "G G",
    "r.io:5000/a/b:t@sha256:" + "0" * 64, "[::1]:5000/a", "a" * 64, "a" * 63 + ".b",
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, 1, 1.5, [], [None], {}, {"a": "b"})
KEYS = ("a", "a/b", "graphpod.dev/x", "stub.graphpod.dev/x", "pod-template-hash", "app.kubernetes.io/name", "k" * 318)


def values(path: str, node: Schema) -> Iterator[Any]:
    """Values for a field: those its keywords make interesting, and some of every other type."""
    yield from OTHERS
    yield from node.get("enum", ())
    if node.get("x-kubernetes-int-or-string"):
        yield from (*TEXTS, 10**15 - 1, 10**15, 2**63 - 1)
    elif node.get("type") == "string":
        yield from TEXTS if node.keys() & {"pattern", "x-kubernetes-validations"} else TEXTS[:3]
        for length in (node.get("minLength", 1) - 1, node.get("maxLength", 8), node.get("maxLength", 8) + 1):
            yield from ("a" * length, "/a" * (length // 2), ("pvc://" + "a" * length)[:length], "1" * length)
        yield from (word.lower() for word in node.get("enum", ()))
    elif node.get("type") == "integer":
        yield from (node["minimum"] - 1, node["minimum"], node["maximum"], node["maximum"] + 1, "1")
    elif node.get("type") == "array":
        yield from _lists(path, node)
    elif "additionalProperties" in node:
        yield from _maps(node)
    elif "properties" in node:
        whole = WHOLE.get(path, {})
        yield from (whole, {**whole, "unknown": 1})
        yield from ({key: value for key, value in whole.items() if key != left} for left in whole)


def _lists(path: str, node: Schema) -> Iterator[Any]:
    item = node["items"]
    most = node["maxItems"]
    if item.get("type") == "integer":
        yield from ([], [1], [1, 2], [2, 1], [1, 1], [0], [1.5], ["1"], list(range(1, most + 1)), list(range(most + 1)))
        yield list(range(1, most + 2))
        return
    if item.get("type") == "string":
        yield from (
            [],
            ["a"],
            ["a", "a"],
            ["*.a.b"],
            ["*"],
            ["https://a"],
            ["https://a/"],
            ["A"],
            ["10.0.0.1"],
            ["a" * 254],
            ["a" * 64],
            ["a" * 63 + ".b"],
            [1],
        )
        yield from (["a"] * most, ["a"] * (most + 1))
        return
    whole = WHOLE.get(f"{path}[]", {name: _plain(item["properties"][name]) for name in item.get("required", ())})
    key = next(iter(node.get("x-kubernetes-list-map-keys", ())), None)
    yield from ([whole], [whole, whole], [whole, 1])
    if key is not None:
        prefix = "/v" if key == "mountPath" else "a"
        several = [{**whole, key: f"{prefix}{index}"} for index in range(most + 1)]
        yield from (several, several[:most])


def _plain(node: Schema) -> Any:
    """Some value of a required field."""
    return node["enum"][0] if "enum" in node else "a"


def _maps(node: Schema) -> Iterator[Any]:
    most = node["maxProperties"]
    some = "1" if node["additionalProperties"].get("x-kubernetes-int-or-string") else "a"
    if some == "1":
        yield from (
            {name: text} for name in ("memory", "ephemeral-storage") for text in ("1m", "1P", "1Mi", 1, 1 << 30)
        )
    yield from ({key: some} for key in KEYS)
    yield from ({f"k{index}": some for index in range(count)} for count in (most, most + 1))
    yield from ({"a": value} for value in values("", node["additionalProperties"]))


def fields(path: str = "spec", node: Schema = SPEC) -> Iterator[tuple[str, Schema]]:
    """Every field with its path; `[]` stands for the item of a list."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child)
    if "properties" in node.get("items", {}):
        yield from fields(f"{path}[]", node["items"])


def with_value(path: str, value: Any) -> Any:
    """A spec that is valid but for `value` at `path`."""
    made, here = value, path
    while "." in here:
        parent, _, name = here.rpartition(".")
        made = [made] if name.endswith("[]") else made
        made = {**WHOLE.get(parent, {}), **BESIDE.get(here, {}), name.removesuffix("[]"): made}
        here = parent
    needed = [more for field, more in ELSEWHERE.items() if f"{path}.".startswith(f"{field}.")]
    return reduce(merged, (*needed, made))


def merged(one: Any, other: Any) -> Any:
    """Both specs in one; where both have a value, that of the second."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: merged(one[key], value) if key in one else value for key, value in other.items()}
    return other

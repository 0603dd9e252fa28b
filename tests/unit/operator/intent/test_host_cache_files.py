"""Files of the host KV cache lie in a volume that pods may write to, and reach the engine's configuration."""

from typing import Any

import pytest
from pydantic import ValidationError

from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.resolver_input import features

MOUNT = {"name": "pages", "mountPath": "/kv"}


def spec(path: str, *mounts: dict[str, Any]) -> Spec:
    return Spec.model_validate(
        {
            "model": {"uri": "pvc://weights/model"},
            "engine": {"hostCache": {"size": "1Gi", "file": {"path": path, "size": "2Gi"}}},
            "podTemplate": {"volumes": [{"name": "pages", "emptyDir": {}}], "volumeMounts": list(mounts)},
        }
    )


@pytest.mark.parametrize("path", ["/kv", "/kv/pages"])
def test_a_folder_in_a_volume_is_the_engines(path: str) -> None:
    found = features(spec(path, MOUNT))
    assert (found.host_cache_bytes, found.host_cache_folder, found.host_cache_file_bytes) == (1 << 30, path, 2 << 30)


@pytest.mark.parametrize(
    ("path", "mounts"), [("/kv", []), ("/kvs", [MOUNT]), ("/", [MOUNT]), ("/kv", [{**MOUNT, "readOnly": True}])]
)
def test_a_folder_that_is_in_no_volume_that_pods_may_write_to_is_refused(
    path: str, mounts: list[dict[str, Any]]
) -> None:
    with pytest.raises(ValidationError, match=r"hostCache\.file\.path"):
        spec(path, *mounts)

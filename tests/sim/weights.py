"""A claim and the volume made for it; there is nothing in it, because nothing runs."""

from tests.places import Manifest


def weights(namespace: str) -> Manifest:
    """The claim `weights` of a namespace, bound; the volume has the namespace's name."""
    size, modes = {"storage": "1Gi"}, ["ReadOnlyMany"]
    claim = {"namespace": namespace, "name": "weights"}
    volume = {
        "capacity": size,
        "accessModes": modes,
        "storageClassName": "",
        "hostPath": {"path": "/weights"},
        "claimRef": claim,
    }
    wanted = {"accessModes": modes, "storageClassName": "", "volumeName": namespace, "resources": {"requests": size}}
    items = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": wanted},
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}

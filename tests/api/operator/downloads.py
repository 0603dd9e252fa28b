"""Downloads without a kubelet: the test ends the pod of a Job, and the Job's controller finds what that means."""

import json
from typing import Any

from tests.eventually import Eventually
from tests.places import Place

FETCHES = "graphpod.dev/weights"
MODEL: dict[str, Any] = {"uri": "hf://org/name@main", "cache": {"size": "1Gi"}}
DONE = {"phase": "Complete", "commit": "abc123", "bytes": 1 << 30}


def jobs(place: Place) -> list[str]:
    """The Jobs that download, by name."""
    return place.names("jobs", FETCHES)


def end(place: Place, eventually: Eventually, code: int, report: dict[str, Any]) -> None:
    """The pod of the only Job ends with this exit code and report."""

    def pod() -> Any:
        return next((one for one in place.all("pod", FETCHES) if "deletionTimestamp" not in one["metadata"]), None)

    found = eventually(pod)
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": json.dumps(report)}
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z", "containerID": "containerd://1"}
    container = {
        **{"name": "fetch", "image": "i", "imageID": "i", "ready": False, "restartCount": 0},
        "state": {"terminated": {**ended, **times}},
    }
    status = {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [container]}
    place.merge("pod", found["metadata"]["name"], {"status": status}, "status")

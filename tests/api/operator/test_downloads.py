"""Downloads against the API server and the Job's own controller."""

import json

from tests.api.operator.downloads import DONE, MODEL, end, jobs
from tests.api.operator.process import Operator
from tests.eventually import Eventually
from tests.places import Place


def test_two_services_have_one_job_and_their_pods_come_after_it(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply(model=MODEL)
    shared = {**MODEL, "cache": {"claim": "demo-weights"}}
    (job,) = eventually(lambda: jobs(place))
    place.apply("other", model=shared)
    eventually(place.reached("ModelAvailable", "False", "Downloading", "other"))
    assert jobs(place) == [job]
    assert place.names("deployments") == []
    end(place, eventually, 0, DONE)
    eventually(lambda: len(place.names("deployments")) == 2)
    assert jobs(place) == []
    claim = json.loads(place.kubectl("get", "pvc", "demo-weights", "-o", "json"))
    (stored,) = (text for key, text in claim["metadata"]["annotations"].items() if key.startswith("models."))
    known = {"uri": MODEL["uri"], "commit": "abc123", "bytes": 1 << 30, "claim": claim["metadata"]["uid"]}
    assert json.loads(stored) == known
    assert "ownerReferences" not in claim["metadata"], "it is retained"
    eventually(lambda: place.status("other").get("model", {}).get("commit") == "abc123")
    place.remove()
    assert place.kubectl("get", "pvc", "-o", "name").split() == ["persistentvolumeclaim/demo-weights"]


def test_a_404_is_not_tried_again_until_somebody_deletes_the_job(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply(model=MODEL)
    (job,) = eventually(lambda: jobs(place))
    end(place, eventually, 65, {"phase": "Failed", "reason": "NotFound", "message": "hf://org/name: no such revision"})
    message = eventually(place.reached("ModelAvailable", "False", "DownloadNotFound"))
    assert message.endswith(f"kubectl -n {place.namespace} delete {job.replace('job.batch/', 'job ')}")
    uid = place.kubectl("get", job, "-o", "jsonpath={.metadata.uid}")
    place.kubectl("delete", job)
    eventually(lambda: jobs(place) == [job])
    assert place.kubectl("get", job, "-o", "jsonpath={.metadata.uid}") != uid
    place.remove()
    eventually(lambda: not jobs(place))

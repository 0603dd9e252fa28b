import json

from testbed.control.audit import Filter, line, lines

CREATE = {
    "requestReceivedTimestamp": "2026-11-21T14:02:07.123456Z",
    "user": {"username": "system:serviceaccount:graphpod-system:operator"},
    "verb": "create",
    "requestURI": "/api/v1/namespaces/default/pods",
    "objectRef": {"resource": "pods", "namespace": "default", "name": "web", "subresource": "binding"},
    "responseStatus": {"code": 201},
}
HEALTH = {
    "requestReceivedTimestamp": "2026-11-21T14:02:08.1Z",
    "user": {"username": "admin"},
    "verb": "get",
    "requestURI": "/version",
}


def test_a_request_is_one_line_of_time_answer_user_verb_and_object():
    words = line(CREATE).split()
    assert words == ["14:02:07", "201", CREATE["user"]["username"], "create", "pods/binding", "default/web"]
    assert line(HEALTH).split() == ["14:02:08", "-", "admin", "get", "/version"]


def test_a_user_is_found_by_the_last_part_of_its_name_and_reads_may_be_left_out():
    assert [Filter("operator").takes(e) for e in (CREATE, HEALTH)] == [True, False]
    assert [Filter(writes=True).takes(e) for e in (CREATE, HEALTH)] == [True, False]
    assert not Filter("perator").takes(CREATE)


def test_a_line_that_is_half_written_waits_for_its_other_half(tmp_path):
    log = tmp_path / "audit.log"
    text = json.dumps(HEALTH) + "\n"
    log.write_text(text + text[:20])
    following = lines(log, Filter(), follow=True)
    assert next(following) == line(HEALTH)
    with log.open("a") as file:
        file.write(text[20:])
    assert next(following) == line(HEALTH)
    assert list(lines(log, Filter(), follow=False)) == [line(HEALTH)] * 2

"""What of a namespace's contents keeps it from being deleted."""

from demo.current.ownership import others


def made(name: str, **metadata: object) -> dict:
    return {"kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def test_what_goes_by_itself_keeps_nothing() -> None:
    owned = made("child", ownerReferences=[{"uid": "1"}])
    going = made("going", deletionTimestamp="2026-11-21T12:00:00Z")
    assert others([owned, going]) == []
    assert others([owned, made("theirs"), going]) == ["ConfigMap/theirs"]

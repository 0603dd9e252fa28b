"""When services may be watched, and from which versions."""

from types import SimpleNamespace
from typing import Any

from graphpod_operator.watch.service_watch import ServiceWatch


def watch(*namespaces: str, told: list[str]) -> ServiceWatch:
    """One whose store is filled, by a list of each namespace."""

    async def served() -> bool:
        return True

    informer: Any = SimpleNamespace(since=lambda kind, namespace: len(namespace or ""))
    made = ServiceWatch(informer, namespaces, lambda: told.append("listed"), lambda: told.append("failed"), served)
    made.begin()
    return made


async def test_the_first_watch_of_each_namespace_goes_on_from_its_list_and_later_ones_list() -> None:
    told: list[str] = []
    services = watch("a", "bb", told=told)
    assert [await services.may_watch(), await services.may_watch()] == [{"a": 1, "bb": 2}, {}]
    assert await watch(told=told).may_watch() == {None: 0}
    assert told == []


async def test_a_watch_that_failed_goes_on_from_no_version() -> None:
    told: list[str] = []
    services = watch(told=told)
    services.failed()
    assert await services.may_watch() == {}
    assert told == ["failed", "listed"]

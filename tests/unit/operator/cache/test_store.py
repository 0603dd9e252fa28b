"""The store: the newest report counts, whoever brings it and whenever it comes."""

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import REMEMBERED_DELETIONS, Store
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE, child, inference_service, pod

KEY = Key(NAMESPACE, "demo")
CONFIG = Resource.ConfigMap


def test_an_older_report_is_dropped() -> None:
    store = Store()
    assert store.observe(child(CONFIG, version=5))
    assert not store.observe(child(CONFIG, version=4))
    assert not store.observe(child(CONFIG, version=5))
    found = store.child(CONFIG, NAMESPACE, "demo")
    assert found is not None
    assert found.version == 5


def test_a_report_from_before_the_deletion_brings_nothing_back() -> None:
    store = Store()
    store.observe(child(CONFIG, version=5))
    assert store.delete(child(CONFIG, version=7))
    assert not store.observe(child(CONFIG, version=6))
    assert store.child(CONFIG, NAMESPACE, "demo") is None


def test_an_object_that_lost_our_label_and_got_it_back_is_known_again() -> None:
    store = Store()
    store.observe(child(CONFIG, version=5))
    store.delete(child(CONFIG, version=6))
    assert store.observe(child(CONFIG, version=7))


def test_what_is_forgotten_is_known_again_by_the_same_report() -> None:
    store = Store()
    store.observe(child(CONFIG, version=5))
    store.forget(child(CONFIG, version=5))
    assert store.child(CONFIG, NAMESPACE, "demo") is None
    assert store.observe(child(CONFIG, version=5))


def test_the_deletion_of_a_predecessor_leaves_the_successor() -> None:
    store = Store()
    store.observe(child(CONFIG, version=9, uid="new"))
    assert not store.delete(child(CONFIG, version=8, uid="old"))
    assert store.child(CONFIG, NAMESPACE, "demo") is not None


def test_the_loss_of_our_label_heard_of_after_it_was_put_back_deletes_nothing() -> None:
    store = Store()
    store.observe(child(CONFIG, version=7))
    assert not store.delete(child(CONFIG, version=6))
    assert store.child(CONFIG, NAMESPACE, "demo") is not None


def test_a_fresh_list_misses_what_is_gone_but_not_what_is_newer() -> None:
    store = Store()
    store.observe(child(CONFIG, name="old", version=5, uid="a"))
    store.observe(child(CONFIG, name="new", version=50, uid="b"))
    store.observe(child(Resource.Service, name="old", version=5, uid="c"))
    listed = child(CONFIG, name="listed", version=7, uid="d")
    store.observe(listed)
    (gone,) = store.missing(CONFIG, None, [listed], version=40)
    assert gone.uid == "a"


def test_a_list_of_one_namespace_says_nothing_of_another() -> None:
    store = Store()
    store.observe(child(CONFIG, version=5))
    assert store.missing(CONFIG, "elsewhere", [], version=40) == []


def test_pods_are_found_by_their_service_in_order_of_name() -> None:
    store = Store()
    for name in ("demo-abc-2", "demo-abc-1"):
        store.observe(Pod.of(pod(name)))
    assert [found.name for found in store.pods(KEY)] == ["demo-abc-1", "demo-abc-2"]
    store.delete(Pod.of(pod("demo-abc-1")))
    assert [found.name for found in store.pods(KEY)] == ["demo-abc-2"]


def test_a_pod_counts_only_if_a_replica_set_of_the_service_controls_it() -> None:
    stray = pod("demo-abc-9")
    stray["metadata"]["ownerReferences"] = []
    assert Pod.of(stray).key is None
    assert Pod.of(pod()).key == KEY


def test_services_are_kept_with_spec_and_status() -> None:
    store = Store()
    store.observe(Service.of(inference_service(status={"observedGeneration": 1})))
    found = store.service(KEY)
    assert found is not None
    assert found.status == {"observedGeneration": 1}
    assert list(store.services()) == [found]


def test_remembered_deletions_are_bounded() -> None:
    store = Store()
    for number in range(REMEMBERED_DELETIONS + 10):
        store.delete(child(CONFIG, version=2, uid=f"u{number}"))
    assert store.observe(child(CONFIG, version=1, uid="u0")), "the oldest deletion is forgotten"
    assert not store.observe(child(CONFIG, name="x", version=1, uid=f"u{REMEMBERED_DELETIONS}"))

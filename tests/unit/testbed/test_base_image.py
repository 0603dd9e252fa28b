"""The base image's pins: what the lock says, what apt is told, what is said when the mirror has moved on."""

from testbed import base_image


def test_the_lock_pins_what_the_recipe_asks_for() -> None:
    there = base_image.pins(base_image.LOCK.read_text())
    assert set(base_image.PACKAGES) <= there.keys()
    assert all(there.values())


def test_pins_are_told_to_apt_so_that_they_win_over_newer_versions() -> None:
    told = base_image.preferences({"b": "2", "a": "1-1+deb12u1"})
    assert told == (
        "Package: a\nPin: version 1-1+deb12u1\nPin-Priority: 1001\n\nPackage: b\nPin: version 2\nPin-Priority: 1001\n"
    )


def test_comments_are_no_pins() -> None:
    assert base_image.pins("# a=1\n\nb=2\n") == {"b": "2"}


def test_what_is_not_as_pinned_is_named_with_both_versions() -> None:
    assert base_image.differences({"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "3"}) == ["b 1 → 2", "c nothing → 3"]

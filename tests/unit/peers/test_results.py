"""Outcomes after the list of refusals, the list itself, and the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from peers.refusals import Refusal, refusal, refusals, unused
from peers.result import judged, missing
from peers.run import Case
from peers.source import Suite, SuiteMissing, archive, suites

LISTED = (Refusal("vllm", "no images", ("a.py::test_image*", "a.py::test_one[x-[1]]")),)
CASE = Case("vllm", "a.py::test_image[png]", "failed", "boom", 1.0)


def test_a_failure_in_the_list_is_refused_with_its_reason() -> None:
    found = judged(CASE, LISTED)
    assert (found.outcome, found.why) == ("refused", "no images")
    assert judged(replace(CASE, test="a.py::test_one[x-[1]]"), LISTED).outcome == "refused"
    assert judged(replace(CASE, outcome="skipped"), LISTED).outcome == "refused"


def test_a_test_that_skips_itself_or_passes_in_the_list_has_failed() -> None:
    other = replace(CASE, test="a.py::test_text")
    assert judged(replace(other, outcome="skipped", why="no GPU"), LISTED).why == "skips itself: no GPU"
    assert judged(other, LISTED) == other
    assert judged(replace(CASE, outcome="passed"), LISTED).outcome == "failed"
    chance = (replace(LISTED[0], chance=True),)
    assert judged(replace(CASE, outcome="passed"), chance).outcome == "refused"
    assert judged(replace(other, outcome="passed"), LISTED).outcome == "passed"


def test_a_pattern_that_names_no_test_is_a_failure() -> None:
    assert unused("vllm", ["a.py::test_image"], LISTED) == ["a.py::test_one[x-[1]]"]
    assert [case.outcome for case in missing("vllm", [CASE], LISTED)] == ["failed"]
    assert refusal("openai", CASE.test, LISTED) is None


def test_a_row_of_the_list_says_whether_its_tests_may_pass_by_chance() -> None:
    listed = refusals()
    assert {one.chance for one in listed} == {True, False}
    words = refusal("vllm", "entrypoints/anthropic/test_messages.py::test_simple_messages", listed)
    assert words is not None
    assert words.chance


def test_no_reason_is_said_twice_and_no_pattern_stands_under_two() -> None:
    listed = refusals()
    names = [(one.suite, one.reason) for one in listed]
    assert len(set(names)) == len(names)
    patterns = [(one.suite, test) for one in listed for test in one.tests]
    assert len(set(patterns)) == len(patterns)


def test_an_archive_of_another_hash_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_CACHE", str(tmp_path))
    served = tmp_path / "served.tar.gz"
    served.write_bytes(b"other")
    monkeypatch.setattr("peers.source._address", lambda suite, folder: served.as_uri())
    suite = Suite("a", "a", "1", "0" * 64, "a-1", (), ())
    with pytest.raises(SuiteMissing, match="expected 0000"):
        archive(suite, lambda line: None)
    assert not (tmp_path / "peers" / "a-1.tar.gz").exists()


def test_every_suite_is_pinned() -> None:
    assert all(len(one.sha256) == 64 and one.files for one in suites().values())

"""The lines a person reads while the demo runs."""

import io
import re

import pytest

from demo.stage_lines import stage


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_stage_ends_in_one_line_with_its_time_and_note() -> None:
    out = io.StringIO()
    with stage("cluster", out) as now:
        now.note("one node")
    assert re.fullmatch(r"✓ cluster +\d+\.\d s  one node\n", out.getvalue())


def test_steps_are_lines_in_a_log_and_progress_is_thinned() -> None:
    out = io.StringIO()
    with stage("capture", out) as now:
        now.say("starting")
        for size in range(100):
            now.progress(f"captured {size}/100")
    first, *rest = out.getvalue().splitlines()
    assert first == "    starting"
    assert len(rest) == 1, "no progress line within the first seconds"


def test_a_log_is_not_told_the_same_again_until_a_minute_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = 0.0, io.StringIO()
    monkeypatch.setattr("demo.stage_lines.time.monotonic", lambda: now)
    with stage("capture", out) as stands:
        for now in range(0, 200, 2):
            stands.progress("captured 0/26" if now < 150 else "captured 1/26")
    assert out.getvalue().splitlines()[:-1] == [f"    captured {done}/26" for done in (0, 0, 0, 1)]


def test_on_a_terminal_steps_overwrite_each_other_and_leave_one_line() -> None:
    out = Terminal()
    with stage("capture", out) as now:
        for size in range(3):
            now.progress(f"captured {size}/3\nand a second line")
    shown = out.getvalue()
    assert shown.count("\n") == 1
    assert all(f"captured {size}/3" in shown for size in range(3))
    assert "second line" not in shown


def test_a_stage_that_fails_says_so_and_lets_the_error_through() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), stage("images", out):
        raise ValueError("no")
    assert out.getvalue().startswith("✗ images")

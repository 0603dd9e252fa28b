import subprocess
import sys
from pathlib import Path

import pytest

from testbed.command import run
from testbed.errors import TestbedError
from testbed.paths import PACKAGE
from testbed.process import identify


def test_an_error_holds_the_command_its_status_its_words_and_the_way_out():
    with pytest.raises(TestbedError, match=r"(?s)`sh -c .*` failed with status 3:\nno such bridge\nlook at `ip link`"):
        run(["sh", "-c", "echo no such bridge >&2; exit 3"], remedy="look at `ip link`")


def test_a_program_that_is_not_there_is_named_with_what_installs_it():
    with pytest.raises(TestbedError, match="no-such-program is not installed: run `python3 -m testbed build`"):
        run(["no-such-program"])


def test_a_program_that_does_not_end_is_ended_at_its_limit():
    with pytest.raises(TestbedError, match="`sleep 600` did not end within 0 s"):
        run(["sleep", "600"], timeout=0.1)


def test_what_we_run_ends_with_us_even_when_we_are_killed(tmp_path: Path, eventually):
    note = tmp_path / "pid"
    script = f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600"
    code = f"from testbed.command import run; run(['sh', '-c', {script!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=PACKAGE.parent)
    eventually(note.exists)
    child = identify(int(note.read_text()))
    assert child is not None
    parent.kill()
    parent.wait()
    eventually(lambda: identify(child.pid) != child)

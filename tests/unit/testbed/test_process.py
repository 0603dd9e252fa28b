import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.process import alive, identify, kill_all, parse_stat, send, spawn, tail, wait_until

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]

LEADERLESS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("here", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # the end of this thread alone
"""


def test_a_command_with_parentheses_and_spaces_does_not_shift_the_fields():
    fields = ["S", *map(str, range(4, 22)), "987654", "rest"]
    assert parse_stat(f"12 (a) b (c) {' '.join(fields)}") == (False, 987654)


def test_a_process_whose_first_thread_ended_lives_as_long_as_the_others(tmp_path):
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", LEADERLESS], log)
    wait_until("it says so", lambda: "here" in log.read_text(), process, log, 10)
    stat = Path(f"/proc/{process.pid}/stat")
    wait_until("its first thread ends", lambda: ") Z " in stat.read_text(), process, log, 10)
    assert alive(process)
    assert kill_all(lambda: [process]) == 1
    assert not alive(process)


def test_a_reused_pid_is_somebody_else():
    me = identify(os.getpid())
    assert me is not None
    assert alive(me)
    assert not alive(replace(me, started=me.started + 1))
    assert not alive(replace(me, boot="another"))


def test_a_signal_never_reaches_a_process_that_only_has_the_same_pid():
    me = identify(os.getpid())
    assert me is not None
    send(replace(me, started=me.started - 1), signal.SIGKILL)  # this test would not go on


def test_a_zombie_is_dead():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None


def test_what_is_spawned_writes_its_log_and_dies_when_killed(tmp_path):
    log = tmp_path / "log"
    process = spawn(SLEEPER, log)
    wait_until("sleeper", lambda: "here" in log.read_text(), process, log, limit=20)
    assert kill_all(lambda: [process]) == 1
    assert not alive(process)


def test_what_is_spawned_holds_none_of_our_descriptors_open(tmp_path):
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    process = spawn(SLEEPER, tmp_path / "log")
    os.close(writer)
    assert os.read(reader, 1) == b"", "the pipe has ended for its reader, though the program still runs"
    assert alive(process)
    os.close(reader)
    kill_all(lambda: [process])


def test_waiting_for_a_dead_process_shows_the_end_of_its_log(tmp_path):
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", "print('no such flag: --frob')"], log)
    with pytest.raises(TestbedError, match=r"(?s)frobber: the process ended.*no such flag: --frob"):
        wait_until("frobber", lambda: False, process, log, limit=20)


def test_waiting_has_a_limit_that_is_said(tmp_path):
    process = spawn(SLEEPER, tmp_path / "log")
    with pytest.raises(TestbedError, match="not within 0 s"):
        wait_until("sleeper", lambda: False, process, tmp_path / "log", limit=0)
    kill_all(lambda: [process])


def test_the_tail_is_the_end_and_names_the_file(tmp_path):
    log = tmp_path / "etcd.log"
    log.write_text("\n".join(f"line {n}" for n in range(100)))
    shown = tail(log, 2)
    assert str(log) in shown
    assert "line 99" in shown
    assert "line 97" not in shown

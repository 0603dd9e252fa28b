"""A cluster is named before anything is sent to it."""

import io

import pytest

from demo.current.consent import confirm
from demo.current.kubeconfig import Context
from testbed import TestbedError

CONTEXT = Context("kind-lab", "https://127.0.0.1:6443", "me", ())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def asked(typed: str) -> str:
    """What a person at a terminal sees who then types `typed`."""
    out = io.StringIO()
    confirm(CONTEXT, "demo", "It will do this.", None, Terminal(typed), out)
    return out.getvalue()


def test_who_types_the_name_has_seen_what_it_stands_for() -> None:
    shown = asked("kind-lab\n")
    assert shown.startswith("It will do this.\n")
    for word in ("kind-lab", "https://127.0.0.1:6443", "me"):
        assert word in shown
    assert shown.endswith("Type the context's name to go on: ")


@pytest.mark.parametrize("typed", ["", "\n", "y\n", "yes\n", "kind\n", "KIND-LAB\n"])
def test_anything_but_the_name_is_no(typed: str) -> None:
    with pytest.raises(TestbedError, match=r"you typed .*, but the current context is 'kind-lab'.*nothing was sent"):
        asked(typed)


def test_confirm_names_it_where_nobody_types() -> None:
    confirm(CONTEXT, "demo", "", "kind-lab", io.StringIO())
    with pytest.raises(TestbedError, match="CONFIRM is 'prod', but the current context is 'kind-lab'"):
        confirm(CONTEXT, "demo", "", "prod", io.StringIO("kind-lab\n"))


def test_without_a_terminal_and_without_confirm_the_error_says_the_whole_command() -> None:
    with pytest.raises(TestbedError) as told:
        confirm(CONTEXT, "demo-down", "", None, io.StringIO("kind-lab\n"))
    assert "nothing was sent to it" in str(told.value)
    assert "make demo-down CLUSTER=current CONFIRM=kind-lab" in str(told.value)

"""The grammar of what goes wrong with a stub engine."""

import pytest

from stubs.engine.fault import FORMS, Fault, FaultError, Kind, parse, written


def test_several_faults_are_separated_by_commas():
    assert parse("slow:prefill:64:30s, oom:decode:4") == (
        Fault(Kind.Slow, phase="prefill", size=64, seconds=30.0),
        Fault(Kind.Oom, phase="decode", size=4),
    )


def test_no_fault_is_the_empty_text():
    assert parse("") == parse(" , ") == ()


@pytest.mark.parametrize(
    "text", ["slow:prefill:64:30s", "oom:decode:4:fatal", "load", "dead:Ready:2.5s", "silent:warmup", "flap:2s"]
)
def test_a_fault_is_written_as_it_is_read(text):
    (fault,) = parse(text)
    assert str(fault) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "'nonsense' is not one of slow, oom"),
        ("oom:decode", "expected oom:<phase>:<size>[:<fatal>]"),
        ("load:prefill", "expected load"),
        ("oom:encode:4", "'encode' is not one of prefill, decode; the form is oom:"),
        ("oom:decode:four", "'four' is no size"),
        ("oom:decode:0", "'0' is no size"),
        ("slow:prefill:64:30", "'30' is no time; expected seconds as in 30s"),
        ("dead:Asleep", "'Asleep' is not one of Loading, Capturing, SelfChecking, Ready"),
        ("oom:decode:4:deadly", "'deadly' is not one of fatal"),
    ],
)
def test_a_fault_that_cannot_be_understood_says_what_is_expected(text, words):
    with pytest.raises(FaultError) as refusal:
        parse(f"load,{text}")
    assert words in str(refusal.value)
    assert text in str(refusal.value)


def test_every_kind_has_a_form_and_every_form_is_shown():
    assert set(FORMS) == set(Kind)
    assert written(Kind.Slow) == "slow:<phase>:<size>:<seconds>"

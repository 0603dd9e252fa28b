"""The resolved policy in words."""

from demo.policy import describe


def phase(**changes: object) -> dict:
    sizes = {"planned": 4, "captured": 4, "failed": 0}
    return {
        "requested": "Auto",
        "planned": "Full",
        "effective": "Full",
        "sizes": sizes,
        "selfCheck": "Passed",
    } | changes


def decision(phase: str, because: str) -> dict:
    return {"rule": "SelfCheck", "phase": phase, "because": because, "hint": "report it"}


def test_each_phase_is_a_line_and_one_that_runs_a_weaker_policy_says_why_and_what_to_do() -> None:
    found = {
        "status": {
            "graph": {
                "prefill": phase(planned="Breakable", effective="Breakable"),
                "decode": phase(effective="Breakable"),
                "decisions": [decision("prefill", "a GPU is missing"), decision("decode", "a replay differs " * 9)],
            }
        }
    }
    lines = describe(found).splitlines()
    assert lines[1].split() == ["prefill", "Auto", "Breakable", "Breakable", "4/4", "Passed"]
    assert lines[2].split() == ["decode", "Auto", "Full", "Breakable", "4/4", "Passed"]
    assert lines[3].startswith("  decode: a replay differs")
    assert lines[-1].endswith("(SelfCheck); report it")
    assert max(map(len, lines)) <= 100
    assert "a GPU is missing" not in "".join(lines), "prefill runs what was planned"


def test_a_decision_about_both_phases_is_one_of_the_phase_that_runs_a_weaker_policy() -> None:
    graph = {
        "prefill": phase(planned="Breakable", effective="Breakable"),
        "decode": phase(effective="Breakable"),
        "decisions": [decision("prefill, decode", "memory ran out")],
    }
    assert describe({"status": {"graph": graph}}).splitlines()[3:] == [
        "  prefill, decode: memory ran out (SelfCheck); report it"
    ]


def test_a_phase_that_has_no_answer_yet_shows_a_dash() -> None:
    running = phase()
    del running["effective"], running["selfCheck"]
    graph = {"prefill": running, "decode": phase(), "decisions": [decision("prefill", "not yet")]}
    (_, prefill, _) = describe({"status": {"graph": graph}}).splitlines()
    assert prefill.split()[3] == "-"

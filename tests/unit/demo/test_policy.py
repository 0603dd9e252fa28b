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


def test_each_phase_is_a_line_and_each_decision_says_why_and_what_to_do() -> None:
    decision = {
        "rule": "NoCuda",
        "phase": "decode",
        "stage": "Spec",
        "outcome": "Adjusted",
        "because": "no GPU is asked for",
        "hint": "ask for nvidia.com/gpu",
    }
    found = {
        "status": {
            "graph": {
                "backend": "Recorder",
                "configHash": "0123456789",
                "resolverRevision": "1",
                "prefill": phase(planned="Breakable", effective="Breakable"),
                "decode": phase(),
                "decisions": [decision],
                "gates": ["PaddingGate"],
            }
        }
    }
    lines = describe(found).splitlines()
    assert lines[1].split() == ["prefill", "Auto", "Breakable", "Breakable", "4/4", "Passed"]
    assert lines[2].split() == ["decode", "Auto", "Full", "Full", "4/4", "Passed"]
    assert "NoCuda (Spec, decode, Adjusted): no GPU is asked for" in lines[4]
    assert "ask for nvidia.com/gpu" in lines[5]
    assert lines[6].endswith("PaddingGate")


def test_a_phase_that_has_no_answer_yet_shows_a_dash() -> None:
    running = phase()
    del running["effective"], running["selfCheck"]
    graph = {"backend": "Recorder", "configHash": "h", "resolverRevision": "1", "prefill": running, "decode": phase()}
    assert describe({"status": {"graph": graph}}).splitlines()[1].split()[3] == "-"

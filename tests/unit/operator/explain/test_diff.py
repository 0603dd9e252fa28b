"""`graphpod explain --diff`: what a change of spec changes, and which pods it replaces."""

import json
from pathlib import Path

import pytest

from tests.unit.operator.explain.plain import GPU, PLAIN, Explain


@pytest.mark.parametrize(
    ("change", "pods", "path"),
    [
        ("", "Nothing changes in the cluster.", None),
        ("  replicas: 3\n", "No pod is replaced; replicas go from 1 to 3.", None),
        ("  graph:\n    decode: Breakable\n", "Every pod is replaced, one after the other", "decode.planned"),
        ("  engine:\n    maxBatch: 4\n", "Every pod is replaced, one after the other", "decode.sizes"),
        ("  engine:\n    deterministic: true\n", "The operator refuses the new spec (FeatureNotBuilt)", "obstacles"),
        (
            "  rollout:\n    strategy: Replace\n",
            "No pod is replaced; other fields of the service's objects change.",
            None,
        ),
    ],
)
def test_a_change_of_spec_tells_what_changes_and_which_pods(
    run: Explain, tmp_path: Path, change: str, pods: str, path: str | None
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + change)
    _, told, _ = run(PLAIN, "--diff", str(other), "-o", "json")
    found = json.loads(told)
    assert found["pods"].startswith(pods)
    paths = {row["path"] for row in found["differences"]}
    assert path in paths if path else not paths
    text = run(PLAIN, "--diff", str(other))[1]
    assert text.splitlines()[0].startswith(pods)
    assert ("\nNothing below changes. It is how the plan would differ" in text) is pods.startswith(
        "The operator refuses"
    )


GAP = " The service does not answer until a new pod is Ready."
TEMPLATE = "Every pod is replaced, one after the other: the pod template changes."
GROUP = "Every pod is replaced: a LeaderWorkerSet makes the pods instead of the Deployment."


@pytest.mark.parametrize(
    ("common", "change", "pods"),
    [
        ("", "  engine: {maxBatch: 4}\n", TEMPLATE),
        ("  rollout: {strategy: Replace}\n", "  engine: {maxBatch: 4}\n", TEMPLATE + GAP),
        ("  rollout: {strategy: Replace}\n  replicas: 2\n", "  engine: {maxBatch: 4}\n", TEMPLATE),
        (
            "  rollout: {strategy: Replace, maxUnavailable: 2}\n  replicas: 2\n",
            "  engine: {maxBatch: 4}\n",
            TEMPLATE + GAP,
        ),
        ("  rollout: {strategy: Replace}\n  suspend: true\n", "  engine: {maxBatch: 4}\n", TEMPLATE),
        ("", "  parallelism: {tensor: 2, nodes: 2}\n", GROUP),
        ("  rollout: {strategy: Replace}\n  replicas: 2\n", "  parallelism: {tensor: 2, nodes: 2}\n", GROUP + GAP),
    ],
)
def test_a_change_that_leaves_no_pod_for_a_while_says_so(
    run: Explain, tmp_path: Path, common: str, change: str, pods: str
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + common + change)
    assert json.loads(run(PLAIN + common, "--diff", str(other), "-o", "json")[1])["pods"] == pods


def test_a_difference_is_printed_in_units_and_a_ladder_by_its_ends(run: Explain, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(GPU)
    told = run(PLAIN, "--diff", str(other))[1]
    for said in (
        "prefill.sizes\n  - 22 of up to 256 tokens: 4 8 12 16 20 24 28 32 … 224 240 256\n  + 74 of up to 16384 tokens",
        "prefill.bytes\n  - 69.7 MiB\n  + 2.3 GiB\n",
        "limits.maxModelLen\n  - 2048 tokens\n  + the model's own length\n",
        "limits.maxBatch\n  - 8 sequences\n  + 256 sequences\n",
        "budget.limitSeconds\n  - 66 min\n",
        "dtype\n  - float32\n  + Auto\n",
    ):
        assert said in told
    assert told.count("\ndecisions\n") == 1
    rows = json.loads(run(PLAIN, "--diff", str(other), "-o", "json")[1])["differences"]
    (row,) = (row for row in rows if row["path"] == "prefill.sizes")
    assert (len(row["before"]), len(row["after"])) == (22, 74)


def test_a_change_to_a_service_that_cannot_start_says_so_first(run: Explain, tmp_path: Path, model: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + "  engine:\n    maxModelLen: 50000\n")
    code, told, _ = run(PLAIN, "--diff", str(other), "--model-config", str(model))
    assert code == 4
    assert told.startswith("cannot start: ContextTooLong: spec.engine.maxModelLen 50000 is more than the 40960")


def test_a_decision_that_stays_is_no_difference(run: Explain, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + "  graph:\n    decode: Breakable\n")
    assert "NoCuda" not in run(PLAIN, "--diff", str(other))[1]
    other.write_text(PLAIN + "  graph:\n    decode: Disabled\n")
    told = run(PLAIN, "--diff", str(other))[1].splitlines()
    place = told.index("decisions")
    assert told[place + 1].startswith("  - NoCuda (decode, Adjusted)")
    assert not [line for line in told if line.rstrip() in ("  -", "  +")]

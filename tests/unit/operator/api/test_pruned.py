"""Fields that are null count as missing, and a value without any is read as it stands."""

from graphpod_operator.api.spec import Spec

MODEL = {"uri": "pvc://weights/model"}


def test_only_a_value_with_a_null_is_copied() -> None:
    """A status has dozens of values, and each look at a service makes it again."""
    whole, nulls = {"model": MODEL}, {"model": MODEL, "replicas": None}
    assert Spec._is_pruned(whole) is whole
    assert Spec._is_pruned(nulls) == whole
    assert Spec.model_validate(nulls) == Spec.model_validate(whole)

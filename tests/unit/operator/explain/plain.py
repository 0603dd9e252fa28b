"""The smallest manifests of a service, and what explains them."""

from collections.abc import Callable

PLAIN = """\
apiVersion: graphpod.dev/v1alpha1
kind: InferenceService
metadata:
  name: demo
spec:
  model:
    uri: pvc://weights/model
"""
GPU = PLAIN + "  resources:\n    limits:\n      nvidia.com/gpu: 1\n"

Explain = Callable[..., tuple[int, str, str]]
"""The fixture `run`: the exit code, what was printed, what was complained of."""

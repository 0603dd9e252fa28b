"""The smallest manifest of a service."""

PLAIN = """\
apiVersion: graphpod.dev/v1alpha1
kind: InferenceService
metadata:
  name: demo
spec:
  model:
    uri: pvc://weights/model
"""

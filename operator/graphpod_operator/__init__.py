"""The graphpod operator: InferenceService in, pods with proved graphs out.

A kopf rim (`watch`, `main`) feeds keys to a queue; everything between a key and the bytes sent to the API
server is plain functions over values.
"""

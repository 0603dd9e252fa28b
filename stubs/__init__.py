"""Stand-ins for what a cluster has and a test machine has not: engines, a hub, object storage, metrics, GPUs, bad luck.

Each is a program with an honest interface of its own; none is part of the product. The ones that run as pods use the
standard library only and travel in the image `stubs`.
"""

"""Pinned memory that torch keeps for the next that asks, as its caching allocator does."""

import torch


def release_pinned() -> None:
    """What is free of it goes back to the system. Before torch 2.13 the call has its name in `torch._C` only; a build
    that has neither keeps the memory for the next that asks."""
    public = getattr(torch.accelerator, "empty_host_cache", None)
    release = public or getattr(torch._C, "_host_emptyCache", None)
    if release is not None:
        release()

"""How a pipeline divides the layers of a model."""


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage: contiguous, and one more at the first stages where they do not divide. The last stage has
    the head besides."""
    return tuple(layers // stages + (stage < layers % stages) for stage in range(stages))

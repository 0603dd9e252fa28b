"""A draft model that agrees with a subject often, and not always: the subject's weights with noise."""

import shutil
from pathlib import Path
from typing import Any

import torch

from graphpod_runtime.engine.start.device_state import LoadModel
from graphpod_runtime.models.model import Model

NOISE = 0.04
"""Of each weight matrix, in parts of its deviation."""


def nearly(folder: Path) -> Path:
    """The folder of the draft model for the subject in `folder`."""
    draft = folder.with_name(f"{folder.name}-draft")
    shutil.copytree(folder, draft, dirs_exist_ok=True)
    return draft


def noisy_in(draft: Path, load: LoadModel) -> LoadModel:
    """`load`, with noise on the weights of the model in the folder `draft`."""

    def loaded(folder: Path, *arguments: Any) -> Model:
        model = load(folder, *arguments)
        generator = torch.Generator().manual_seed(5)
        for parameter in model.module().parameters() if folder == draft else ():
            if parameter.dim() > 1:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.data.add_((noise * NOISE * parameter.data.float().std().cpu()).to(parameter))
        return model

    return loaded

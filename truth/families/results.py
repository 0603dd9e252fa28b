"""Results of trials on disk, by model type."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "recorded"


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """All of `path`; none where there is no such file."""
    return dict(json.loads(path.read_bytes())["families"]) if path.is_file() else {}


def keep(path: Path, trial: Mapping[str, Any]) -> None:
    """Adds one to `path`, in the place of an earlier one of its type."""
    import torch
    import transformers

    families = kept(path) | {str(trial["model_type"]): dict(trial)}
    whole = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
        **({"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        "families": dict(sorted(families.items())),
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")

"""Results of trials on disk, by model type."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "recorded"


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """All of `path`, variants by their names; none where there is no such file."""
    whole = json.loads(path.read_bytes()) if path.is_file() else {}
    return {**whole.get("families", {}), **whole.get("variants", {})}


def keep(path: Path, trial: Mapping[str, Any]) -> None:
    """Adds one to `path`, in the place of an earlier one of its type or variant."""
    import torch
    import transformers

    trials = kept(path) | {str(trial.get("variant") or trial["model_type"]): dict(trial)}
    whole = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
        **({"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        "families": {name: one for name, one in sorted(trials.items()) if not one.get("variant")},
        "variants": {name: one for name, one in sorted(trials.items()) if one.get("variant")},
    }
    path.write_text(json.dumps(whole, indent=1) + "\n")

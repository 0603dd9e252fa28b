"""GGUF file -> Hugging Face style folder, the only form of weights the engine loads.

`convert` does the work, `main` is `graphpod-engine convert`. The order: read the header, check that the file is one
we can convert, write every file into a hidden folder next to the target, rename it into place. Whoever finds the
target folder therefore finds it whole.
"""

from graphpod_runtime.convert.command import main
from graphpod_runtime.convert.folder import Converted, Dtype, convert
from graphpod_runtime.convert.problem import ConvertError

__all__ = ["ConvertError", "Converted", "Dtype", "convert", "main"]

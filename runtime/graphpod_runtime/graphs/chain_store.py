"""Chains on disk, beside compiled code: a start that finds its model's chain traces nothing and imports no compiler."""

import contextlib
import hashlib
import logging
import pickle
import uuid
from pathlib import Path

import torch
from torch import nn

from graphpod_runtime.compiled.cache import FOLDER, machine
from graphpod_runtime.graphs.chain import Chain, members

logger = logging.getLogger("graphpod.compiled")


class ChainStore:
    """Entries of one model in `folder`; its rules are those of `compiled/cache.py`: an entry is code that runs in the
    engine, appears by renaming, and is passed over unless it is whole.
    """

    def __init__(self, folder: Path, device: torch.device, model: str) -> None:
        """`model` says what, beside code and weights' shapes, decides about a trace: sizes, switches, dtype."""
        self._folder, self._device, self._model = folder, device, model

    def found(self, body: nn.Module) -> Chain | None:
        """The chain that was kept of a body like this."""
        for path in sorted(self._folder.glob(f"chain-{self._key(body)}-*.pickle")):
            try:
                content = path.read_bytes()
                if _digest(content) != path.stem.rpartition("-")[2]:
                    raise ValueError("its content is not what its name says")
                chain = pickle.loads(content)
                assert isinstance(chain, Chain)
            except (OSError, ValueError, pickle.UnpicklingError, ImportError, AttributeError) as error:
                logger.warning("%s cannot be used, the model is traced again: %s", path, error)
            else:
                return chain
        return None

    def keep(self, body: nn.Module, chain: Chain) -> None:
        """Keeps `chain` for the next start, where the folder can be written."""
        content = pickle.dumps(chain)
        partial = self._folder / f".{uuid.uuid4().hex}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.rename(self._folder / f"chain-{self._key(body)}-{_digest(content)}.pickle")
        except OSError as error:
            logger.warning("a trace is not kept for the next start: %s; name a folder in %s", error, FOLDER)
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def _key(self, body: nn.Module) -> str:
        parts = [*machine(self._device), self._model]
        for name, module in body.named_modules():
            # The engine's sources are in the machine's part; a class may be of another package.
            code = type(module).forward.__code__
            parts.append(f"{name} {type(module).__qualname__} {code.co_names} {code.co_code.hex()}")
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in members(body).items()]
        return _digest("\n".join(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]

"""A package `vllm` without vLLM: an importer that makes its modules as they are imported.

A few names have a counterpart of ours: the model's tokenizer, the size of its vocabulary, our version. Everything else
is `Foreign`: it can be imported and named in a signature. A test that uses it tests vLLM's own classes in its process;
it fails, and stands in the list of refusals.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from graphpod_policy import __version__
from peers.settings import Settings


class ForeignCode(Exception):
    """A test uses a class of vLLM in its own process."""


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ForeignCode(f"{cls.__name__}.{name} is vLLM's own code")

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if issubclass(cls, BaseException):
            return super().__call__(*arguments, **named)
        raise ForeignCode(f"{cls.__name__} is vLLM's own code")


class Foreign(metaclass=_Meta):
    """A name of vLLM without a counterpart."""


def tokenizer(*names: str, **options: Any) -> PreTrainedTokenizerBase:
    """The served model's, whatever name a test has for it."""
    return AutoTokenizer.from_pretrained(Settings.of_environment().tokenizer, local_files_only=True)


class ModelConfig:
    """As far as tests read it: the number of tokens in the vocabulary."""

    def __init__(self, **options: Any) -> None:
        self._size = len(tokenizer())

    def get_vocab_size(self) -> int:
        return self._size


class _Hub:
    """No hub: an adapter's files are a folder that is not there. Tests of LoRA stand in the list of refusals."""

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        return f"/nonexistent/{repo_id}"


NAMES: dict[str, dict[str, Any]] = {
    "vllm.tokenizers": {"get_tokenizer": tokenizer},
    "vllm.config": {"ModelConfig": ModelConfig},
    "vllm.version": {"__version__": __version__, "_prev_minor_version": lambda: __version__},
    "vllm.platforms": {"current_platform": SimpleNamespace(is_rocm=lambda: False, is_cuda=lambda: False)},
    "vllm.transformers_utils.repo_utils": {"hf_api": _Hub},
    "vllm.envs": {"VLLM_USE_RUST_FRONTEND": False},
    "transformers.AutoTokenizer": {},
}


class Module(ModuleType):
    """A module of vLLM: names of NAMES, and Foreign for all others."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        if whole in sys.modules:
            return sys.modules[whole]
        known = NAMES.get(self.__name__, {})
        bases = (Foreign, Exception) if name.endswith("Error") else (Foreign,)
        value = known[name] if name in known else _Meta(name, bases, {})
        setattr(self, name, value)
        return value


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `vllm` and all modules below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "vllm":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        for name, value in NAMES.get(module.__name__, {}).items():
            setattr(module, name, value)


def install() -> None:
    """Makes `import vllm` work in this process, and gives every test our model's tokenizer."""
    sys.meta_path.insert(0, Importer())
    for name in NAMES:
        if name.startswith("vllm"):
            __import__(name)
    ours = AutoTokenizer.from_pretrained

    def from_pretrained(name: object, *more: Any, **options: Any) -> Any:
        return ours(Settings.of_environment().tokenizer, local_files_only=True)

    AutoTokenizer.from_pretrained = from_pretrained  # type: ignore[method-assign]

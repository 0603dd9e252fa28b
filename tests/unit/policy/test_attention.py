"""Which kernels attend on a GPU, and why: our own kernel decodes, so what it needs holds for flashinfer, too."""

from dataclasses import replace

import pytest

from graphpod_policy import Architecture, AttentionBackend, Device, Kernels
from graphpod_policy.attention import AttentionKernels, Work, attention_for
from graphpod_policy.node import Capability

FP8 = "float8_e4m3fn"
AMPERE = Kernels(fa2=(Architecture((8, 0)),), fa3=())
WORK = Work(Device.Cuda, "bfloat16", "bfloat16", "Qwen3ForCausalLM", 128, kernels=AMPERE)


@pytest.mark.parametrize(
    ("capability", "kv_dtype", "kernels", "words"),
    [
        ((8, 0), "bfloat16", AttentionKernels.Fa2, ""),
        ((8, 9), FP8, AttentionKernels.Fa2, ""),
        ((8, 0), FP8, AttentionKernels.Torch, "Triton supports FP8 from compute capability 8.9 on"),
    ],
)
def test_flashinfer_prefills_only_where_our_kernel_can_decode(
    capability: Capability, kv_dtype: str, kernels: AttentionKernels, words: str
) -> None:
    """An A100 has no e4m3 in Triton, whatever kernels of flashinfer were built for it."""
    work = replace(WORK, capability=capability, kv_dtype=kv_dtype)
    choice = attention_for(work, AttentionBackend.Auto)
    assert (choice.kernels, choice.reads_whole_tables) == (kernels, kernels is AttentionKernels.Torch)
    assert words in choice.because
    asked = attention_for(work, AttentionBackend.FlashInfer)
    assert asked.kernels is (AttentionKernels.Fa2 if kernels is AttentionKernels.Fa2 else None)
    assert words in asked.because


@pytest.mark.parametrize("asked", [AttentionBackend.Auto, AttentionBackend.Torch])
def test_torch_decodes_where_triton_is_not_installed_and_the_report_says_so(asked: AttentionBackend) -> None:
    choice = attention_for(replace(WORK, capability=(9, 0), triton=False), asked)
    assert (choice.kernels, choice.reads_whole_tables) == (AttentionKernels.Torch, True)
    assert choice.because.endswith("the package triton is not installed")


def test_a_cpu_needs_no_triton() -> None:
    choice = attention_for(replace(WORK, device=Device.Cpu, triton=False), AttentionBackend.Auto)
    assert (choice.kernels, choice.reads_whole_tables) == (AttentionKernels.Torch, False)
    assert "triton" not in choice.because

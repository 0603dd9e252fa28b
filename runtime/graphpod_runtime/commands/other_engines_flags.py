"""Flags of vLLM and SGLang: a command that was written for another engine is refused with the flags of this one."""

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Sequence

USE = {
    "--model-path": "--model",
    "--served-model-name": "--name",
    "--port": "--http-port",
    "--max-num-seqs": "--max-batch",
    "--max-running-requests": "--max-batch",
    "--context-length": "--max-model-len",
    "--max-num-batched-tokens": "--prefill-sizes (its largest size is the longest pass)",
    "--chunked-prefill-size": "--prefill-sizes (its largest size is the longest pass)",
    "--enforce-eager": "--prefill Disabled --decode Disabled",
    "--disable-cuda-graph": "--prefill Disabled --decode Disabled",
    "--cuda-graph-bs": "--decode-sizes",
    "--tensor-parallel-size": "--tensor-parallel",
    "--tp-size": "--tensor-parallel",
    "--tp": "--tensor-parallel",
    "-tp": "--tensor-parallel",
    "--pipeline-parallel-size": "--pipeline-parallel",
    "--pp-size": "--pipeline-parallel",
    "--pp": "--pipeline-parallel",
    "-pp": "--pipeline-parallel",
    "--enable-expert-parallel": "--expert-parallel (the same number as --tensor-parallel)",
    "--expert-parallel-size": "--expert-parallel",
    "--ep-size": "--expert-parallel",
    "--ep": "--expert-parallel",
    "--nnodes": "--nodes",
    "--node-rank": "--node-index",
    "--master-addr": "--leader",
    "--dist-init-addr": "--leader",
    "--api-key": "--api-key-file (the file has the key)",
    "--ssl-certfile": "--tls-folder",
    "--ssl-keyfile": "--tls-folder",
    "--allowed-origins": "--cors-allow-origin",
    "--otlp-traces-endpoint": "--otlp-endpoint",
    "--generation-config": "--sampling-defaults",
    "--tool-call-parser": "--tool-parser",
    "--speculative-config": "--speculative",
    "--speculative-algorithm": "--speculative",
    "--speculative-draft-model-path": "--draft-model",
    "--speculative-num-steps": "--draft-tokens",
    "--speculative-eagle-topk": "--draft-topk",
    "--speculative-num-draft-tokens": "--draft-tree-tokens",
    "--enable-sleep-mode": "--sleep",
}
"""A row for each: theirs, and ours."""

OMIT = {
    "--gpu-memory-utilization": "the KV cache takes the memory that is left",
    "--mem-fraction-static": "the KV cache takes the memory that is left",
    "--data-parallel-size": "a server has one copy of the model",
    "--dp-size": "a server has one copy of the model",
    "--block-size": "no option sets the page size",
    "--page-size": "no option sets the page size",
    "--attention-backend": "no option sets the kernels of attention",
    "--no-enable-prefix-caching": "no option switches the prefix cache off",
    "--disable-radix-cache": "no option switches the prefix cache off",
    "--enable-prefix-caching": "the prefix cache is on by default",
    "--enable-chunked-prefill": "long prompts are always divided",
    "--chat-template": "the template is that of the model's folder",
    "--tokenizer": "the tokenizer is that of the model's folder",
    "--disable-log-requests": "only refused requests are logged",
    "--enable-log-requests": "only refused requests are logged",
    "--log-requests": "only refused requests are logged",
    "--enable-metrics": "metrics are always on",
    "--enable-auto-tool-choice": "tools are always on",
    "--trust-remote-code": "code in a model's folder is never run",
    "--enable-lora": "LoRA is not built",
    "--lora-paths": "LoRA is not built",
}
"""Those that have no counterpart, and why."""
ALIKE = 0.8
"""Of a misspelt flag with the one that is meant. Most flags of other engines are less like one of these."""


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """As `parse_args`. The error for a flag that `parser` does not have names the one to use."""
    given = sys.argv[1:] if arguments is None else arguments
    own = re.findall(r"--[a-z-]+", parser.format_usage())
    # A word with a space is a value, such as a prompt about flags.
    names = dict.fromkeys(word.partition("=")[0] for word in given if " " not in word)
    steps = [f"for {name} use {USE[name]}" for name in names if name in USE and USE[name].split()[0] in own]
    steps += [f"omit {name}: {OMIT[name]}" for name in names if name in OMIT]
    what, flag = ("a prompt", "--prompt") if "--prompt" in own else ("a model's folder", "--model")
    if given and not given[0].startswith("-") and not names.keys() & {flag, "--config"}:
        steps.append(f"for {what} use {flag} {shlex.quote(given[0])}")
    if steps:
        parser.error("; ".join(steps))
    options, unknown = parser.parse_known_args(given)
    if unknown:
        near = difflib.get_close_matches(unknown[0].partition("=")[0], own, n=1, cutoff=ALIKE)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {near[0]}?" if near else ""))
    return options

"""`graphpod-engine generate`: prompts in, text out, no server."""

import argparse
import json
import sys
import time
from pathlib import Path

from graphpod_policy import ConfigError, ExitCode
from graphpod_policy.limits import MOST_CONTEXT
from graphpod_policy.start.flags import in_flags
from graphpod_runtime.api.engine import Engine
from graphpod_runtime.api.errors import EngineFailed, RequestRefused
from graphpod_runtime.api.local_config import LocalError, LocalOptions, add_local_options, require_no_file
from graphpod_runtime.api.results import Generated
from graphpod_runtime.api.sampling_options import SamplingOptions
from graphpod_runtime.api.settings import words_of
from graphpod_runtime.base.arguments import number
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.commands.other_engines_flags import parsed
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.front.openai.sampling.sampling_defaults import DefaultsInvalid
from graphpod_runtime.front.text.tokenizer import TokenizerInvalid
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.wire.bounds import LEAST
from graphpod_runtime.wire.messages import Logprob

ALTERNATIVES = 20
"""The most alternatives to one token."""


def main(arguments: list[str] | None = None) -> int:
    """Generates for every --prompt; returns the exit code. Text goes to standard output, the rest to standard error."""
    options = _options(arguments)
    began = time.time()
    try:
        require_no_file(options.model)
        read_shape(options.model)  # an unknown architecture is reported before a missing tokenizer
        sampling = SamplingOptions(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
            seed=options.seed,
            logprobs=options.logprobs,
            prompt_logprobs=options.prompt_logprobs,
        )
        start_log = StartLog(lambda line: print(in_flags(line), file=sys.stderr, flush=True))
        with Engine(**LocalOptions.of(options).of_library(), report=start_log.note) as engine:
            ready = time.time()
            if options.plain:
                found = engine.generate(options.prompt, sampling)
            else:
                found = engine.chat([[{"role": "user", "content": text}] for text in options.prompt], sampling)
            if options.json:
                accounts = [_account(engine, answer) for answer in found]
                print(json.dumps({"answers": accounts, "warmup": engine.warmup}, ensure_ascii=False))
                return 0
            policies = words_of(engine.warmup)
    except StartFailure as failure:
        return failure.code  # the log of the start has it
    except (ModelInvalid, TokenizerInvalid, DefaultsInvalid, EngineFailed) as error:
        print(f"{ExitCode.ModelInvalid.name}: {error}", file=sys.stderr)
        return ExitCode.ModelInvalid
    except LocalError as error:
        print(f"{error.code.name}: {error}", file=sys.stderr)
        return error.code
    except (ConfigError, RequestRefused) as error:
        print(f"{ExitCode.ConfigInvalid.name}: {in_flags(str(error))}", file=sys.stderr)
        return ExitCode.ConfigInvalid
    for answer in found:
        print(answer.text)
    count = sum(answer.usage.completion_tokens for answer in found)
    print(f"{count} tokens in {time.time() - ready:.2f} s, start {ready - began:.1f} s, {policies}", file=sys.stderr)
    return 0


def _account(engine: Engine, answer: Generated) -> dict[str, object]:
    """One answer; log-probabilities only where they were asked for."""

    def token(id: int, logprob: float) -> dict[str, object]:
        return {"token": id, "text": engine.detokenize([id]), "logprob": logprob}

    def listed(logprobs: tuple[Logprob, ...]) -> list[dict[str, object]]:
        return [token(one.token, one.logprob) | {"top": [token(*entry) for entry in one.top]} for one in logprobs]

    return (
        {"text": answer.text, "promptTokens": answer.usage.prompt_tokens, "tokens": list(answer.token_ids)}
        | ({} if answer.logprobs is None else {"logprobs": listed(answer.logprobs)})
        # Nothing precedes the first token of a prompt.
        | ({} if answer.prompt_logprobs is None else {"promptLogprobs": [None, *listed(answer.prompt_logprobs)]})
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parsed(parser, arguments)
    if not options.json and (options.logprobs, options.prompt_logprobs) != (None, None):
        parser.error("--logprobs and --prompt-logprobs need --json; add it")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="graphpod-engine generate", description="generate without a server")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a model folder")
    parser.add_argument("--prompt", action="append", required=True, help="may be repeated: the prompts form one batch")
    parser.add_argument("--plain", action="store_true", help="continue the text itself, without the chat template")
    tokens = number(int, 1, MOST_CONTEXT)
    parser.add_argument("--max-tokens", type=tokens, default=128, metavar="N", help="default: %(default)s")
    parser.add_argument("--temperature", type=_temperature, default=0.0, help="0 is greedy, at most 2")
    parser.add_argument("--top-p", type=number(float, LEAST, 1.0), default=1.0, help="above 0, at most 1")
    parser.add_argument("--top-k", type=number(int, 0, 2**31 - 1), default=0, help="0, the default: all tokens")
    parser.add_argument(
        "--min-p",
        type=number(float, 0.0, 1.0),
        default=0.0,
        help="relative to the likeliest, 0 to 1",
    )
    parser.add_argument("--seed", type=number(int, -(2**63), 2**63 - 1))
    add_local_options(parser)
    parser.add_argument("--json", action="store_true", help="tokens and the warm-up report as one JSON object")
    group = parser.add_argument_group("with --json")
    group.add_argument(
        "--logprobs",
        type=number(int, 0, ALTERNATIVES),
        metavar="N",
        help="log-probabilities of the answer's tokens, each with the N likeliest alternatives",
    )
    group.add_argument(
        "--prompt-logprobs", type=number(int, 0, ALTERNATIVES), metavar="N", help="the same for the prompt's tokens"
    )
    return parser


def _temperature(word: str) -> float:
    value = number(float, 0.0, 2.0)(word)
    return value if value >= LEAST else 0.0

"""`graphpod-engine generate`: prompts in, text out, no server."""

import argparse
import json
import sys
import time
from pathlib import Path

from graphpod_policy import ConfigError, ExitCode, Facts, limits
from graphpod_runtime.api.local_config import LocalError, LocalOptions, add_local_options, local_config
from graphpod_runtime.base.arguments import number
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import Answer, NotInModel, NoToken, PromptTooLong, answers, refuse_misfits
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import DoesNotFit
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from graphpod_runtime.engine.start.resolver_facts import model_facts
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.front.text.chat_template import TemplateError
from graphpod_runtime.front.text.tokenizer import Tokenizer, TokenizerInvalid
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.wire.bounds import LEAST
from graphpod_runtime.wire.messages import Logprob
from graphpod_runtime.wire.report import Report

ALTERNATIVES = 20
"""The most alternatives to one token."""


def main(arguments: list[str] | None = None) -> int:
    """Generates for every --prompt; returns the exit code. Text goes to standard output, the rest to standard error."""
    options = _options(arguments)
    began = time.time()
    try:
        shape = read_shape(options.model)  # an unknown architecture is reported before a missing tokenizer
        config = local_config(LocalOptions.of(options))
        tokenizer = Tokenizer(options.model)
        prompts = [_encode(tokenizer, text, plain=options.plain) for text in options.prompt]
        longest = limits.context(config.feature_set(), Facts(model=model_facts(shape)))
        refuse_misfits(prompts, options.max_tokens, longest)
        start_log = StartLog(lambda line: print(line, file=sys.stderr, flush=True))
        runner = Runner(config, start_log.note)
        runner.start()
        ready = time.time()
        sampling = Sampling(options.temperature, options.top_p, options.seed, options.top_k, options.min_p)
        wants = LogprobRequest(options.logprobs, options.prompt_logprobs)
        found = answers(runner, prompts, options.max_tokens, sampling, wants)
    except StartFailure as failure:
        return failure.code  # the log of the start has it
    except (ModelInvalid, TokenizerInvalid, NotInModel, NoToken) as error:
        print(f"{ExitCode.ModelInvalid.name}: {error}", file=sys.stderr)
        return ExitCode.ModelInvalid
    except LocalError as error:
        print(f"{error.code.name}: {error}", file=sys.stderr)
        return error.code
    except (ConfigError, TemplateError, PromptTooLong, DoesNotFit) as error:
        print(f"{ExitCode.ConfigInvalid.name}: {error}", file=sys.stderr)
        return ExitCode.ConfigInvalid
    if options.json:
        accounts = [_account(tokenizer, *entry, wants) for entry in zip(prompts, found, strict=True)]
        print(json.dumps({"answers": accounts, "warmup": runner.report.as_dict()}, ensure_ascii=False))
        return 0
    for answer in found:
        print(tokenizer.decode(list(answer.tokens)))
    count = sum(len(answer.tokens) for answer in found)
    print(
        f"{count} tokens in {time.time() - ready:.2f} s, start {ready - began:.1f} s, {_policies(runner.report)}",
        file=sys.stderr,
    )
    return 0


def _encode(tokenizer: Tokenizer, text: str, *, plain: bool) -> list[int]:
    return tokenizer.encode(text) if plain else tokenizer.encode_chat([{"role": "user", "content": text}])


def _account(tokenizer: Tokenizer, prompt: list[int], answer: Answer, wants: LogprobRequest) -> dict[str, object]:
    """One answer; log-probabilities only where they were asked for."""

    def listed(logprobs: tuple[Logprob, ...]) -> list[dict[str, object]]:
        return [_token(tokenizer, one.token, one.logprob) | {"top": _top(tokenizer, one)} for one in logprobs]

    return (
        {"text": tokenizer.decode(list(answer.tokens)), "promptTokens": len(prompt), "tokens": list(answer.tokens)}
        | ({} if wants.answer is None else {"logprobs": listed(answer.logprobs)})
        # Nothing precedes the first token of a prompt.
        | ({} if wants.prompt is None else {"promptLogprobs": [None, *listed(answer.prompt_logprobs)]})
    )


def _top(tokenizer: Tokenizer, logprob: Logprob) -> list[dict[str, object]]:
    return [_token(tokenizer, *entry) for entry in logprob.top]


def _token(tokenizer: Tokenizer, id: int, logprob: float) -> dict[str, object]:
    return {"token": id, "text": tokenizer.decode([id]), "logprob": logprob}


def _policies(report: Report) -> str:
    return ", ".join(f"{phase} {part.effective} ({report.backend})" for phase, part in report.phases.items())


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.json and (options.logprobs, options.prompt_logprobs) != (None, None):
        parser.error("--logprobs and --prompt-logprobs need --json; add it")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="graphpod-engine generate", description="generate without a server")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a model folder")
    parser.add_argument("--prompt", action="append", required=True, help="may be repeated: the prompts form one batch")
    parser.add_argument("--plain", action="store_true", help="continue the text itself, without the chat template")
    parser.add_argument("--max-tokens", type=number(int, 1), default=128, metavar="N", help="default: %(default)s")
    parser.add_argument("--temperature", type=_temperature, default=0.0, help="0 is greedy, at most 2")
    parser.add_argument("--top-p", type=number(float, LEAST, 1.0), default=1.0, help="above 0, at most 1")
    parser.add_argument("--top-k", type=number(int, 0), default=0, help="0, the default: all tokens")
    parser.add_argument(
        "--min-p",
        type=number(float, 0.0, 1.0),
        default=0.0,
        help="relative to the likeliest, 0 to 1",
    )
    parser.add_argument("--seed", type=int)
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

"""What a server says of itself before any load: its model, its version, and whether it takes token ids."""

import aiohttp

from graphpod_runtime.bench.serve.drive.client import LONGEST_MESSAGE
from graphpod_runtime.bench.serve.drive.messages import Target
from graphpod_runtime.bench.serve.figures.report import Server

VERSIONS = ("/version", "/server_info", "/get_server_info")
"""Where vLLM and SGLang report their version; others answer 404."""
UNKNOWN = "unknown"


class TargetInvalid(Exception):
    """The URL cannot be measured; the message says why and what to do."""


def base_of(url: str) -> str:
    """The URL below which the endpoints are: with /v1, whether or not `url` has it."""
    if not url.startswith(("http://", "https://")):
        raise TargetInvalid(f"{url!r} is no URL; write http://HOST:PORT")
    plain = url.rstrip("/")
    return plain if plain.endswith("/v1") else f"{plain}/v1"


async def ask(base: str, key: str | None, name: str | None) -> Server:
    """The server behind `base`. `name` picks one of several models. TargetInvalid where there is none."""
    async with _session(Target(base, "", key, timeout=30)) as http:
        try:
            async with http.get(f"{base}/models") as response:
                if response.status != 200:
                    said = (await response.text())[:LONGEST_MESSAGE]
                    raise TargetInvalid(f"{base}/models answers HTTP {response.status}: {said}")
                models = (await response.json())["data"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TargetInvalid(f"{base} does not answer: {error or 'timeout'}; start the server first") from error
        except (ValueError, KeyError, TypeError) as error:
            raise TargetInvalid(f"{base}/models is not OpenAI's list of models: {error!r}") from error
        names: list[str] = [model["id"] for model in models]
        if not names:
            raise TargetInvalid(f"{base}/models names no model; load one into the server first")
        chosen = name or names[0]
        if chosen not in names:
            raise TargetInvalid(f"{base} has no model {chosen!r}; give one of these as --name: {', '.join(names)}")
        owner = next(model.get("owned_by") or UNKNOWN for model in models if model["id"] == chosen)
        return Server(url=base, model=chosen, version=f"{owner} {await _version(http, base)}")


def _session(target: Target) -> aiohttp.ClientSession:
    key = {} if target.key is None else {"Authorization": f"Bearer {target.key}"}
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=target.timeout, sock_connect=30), headers=key)


async def _version(http: aiohttp.ClientSession, base: str) -> str:
    for path in VERSIONS:
        try:
            async with http.get(base.removesuffix("/v1") + path) as response:
                if response.status == 200 and (found := (await response.json()).get("version")):
                    return str(found)
        except (aiohttp.ClientError, TimeoutError, ValueError, AttributeError):
            continue
    return UNKNOWN


async def refusal_of_ids(target: Target, vocab: int) -> str | None:
    """Why /v1/completions refuses a prompt of token ids, the largest of them `vocab` - 1; None where it takes one."""
    body = {"model": target.model, "prompt": [vocab // 2, vocab - 1], "max_tokens": 1}
    async with _session(target) as http:
        try:
            async with http.post(f"{target.base}/completions", json=body) as response:
                said = (await response.text())[:LONGEST_MESSAGE]
                return None if response.status == 200 else f"HTTP {response.status}: {said}"
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TargetInvalid(f"{target.base}/completions does not answer: {error or 'timeout'}") from error

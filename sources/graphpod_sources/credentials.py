"""Credentials: files of a mounted Secret, one for each key, or environment variables of the same names."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graphpod_sources.problem import Problem, Reason

FOLDER = Path("/etc/graphpod/credentials")
LARGEST = 256 << 10  # bytes
DOCKER = ".dockerconfigjson"
SECRETS = frozenset((
    "token", "HF_TOKEN", DOCKER, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "SAS_TOKEN",
))  # fmt: skip
"""Names of all that is a credential."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are no credentials: nothing says to which hosts those may be sent."""
    return {name: value for name, value in environment.items() if name not in SECRETS}


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the Secret has. Nothing of it is in `repr`, in a message or in a log."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: frozenset[str] = frozenset()
    """The names that come from the Secret; the others are variables."""

    @classmethod
    def read(cls, folder: Path, environment: Mapping[str, str]) -> "Credentials":
        """Of the files in `folder`, then of the environment. Raises `Problem` for a file that cannot be read."""
        values, secret = dict(environment), set[str]()
        try:
            files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
            for file in files:
                if file.stat().st_size > LARGEST:
                    raise Problem(
                        Reason.Unauthorized, f"{file} has more than {LARGEST} bytes, no credential is as long"
                    )
                values[file.name] = file.read_text("utf-8").strip()
                secret.add(file.name)
        except (OSError, UnicodeDecodeError) as error:
            raise Problem(Reason.Unauthorized, f"{folder} cannot be read ({type(error).__name__})") from error
        return cls(values, frozenset(secret))

    def get(self, *names: str) -> str | None:
        """The first of these that is there and not empty."""
        name = self.named(*names)
        return self.values[name] if name is not None else None

    def named(self, *names: str) -> str | None:
        """Which of these is the first that is there and not empty."""
        return next((name for name in names if self.values.get(name)), None)

    def registry(self, host: str) -> tuple[str, str] | None:
        """User and password for a registry, from `.dockerconfigjson`. Raises `Problem` when that is malformed."""
        text = self.get(DOCKER)
        if text is None:
            return None
        try:
            auths = json.loads(text)["auths"]
            for name, entry in auths.items():
                if _host(name) != _host(host):
                    continue
                if entry.get("auth"):
                    user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
                    return user, password
                for part in (named := (str(entry["username"]), str(entry["password"]))):
                    part.encode()  # JSON can spell half a surrogate pair, which no header can hold
                return named
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError) as error:
            raise Problem(
                Reason.Unauthorized,
                f"{DOCKER} of the Secret has no usable auths ({type(error).__name__})",
                next_step="make the Secret with kubectl create secret docker-registry",
            ) from error
        return None


def _host(name: str) -> str:
    """A registry as `auths` names it: with or without a scheme and a path; Docker's hub has two names."""
    host = name.partition("://")[2] or name
    host = host.partition("/")[0]
    return "registry-1.docker.io" if host in ("docker.io", "index.docker.io") else host

"""URIs of weights: the schemes there are, and how each reads."""

from __future__ import annotations

from typing import NamedTuple

from graphpod_operator.api.base import Ruled, ValidationRule, matches


class Scheme(NamedTuple):
    """One scheme: its name, how a URI of it reads, and the pattern of that."""

    name: str
    form: str
    pattern: str


_WORD = "[A-Za-z0-9][-A-Za-z0-9._]*"
_SEGMENTS = "(/[-A-Za-z0-9._~+=@%]+)"
_HOST = "[A-Za-z0-9][-A-Za-z0-9.]*(:[0-9]+)?"

SCHEMES = (
    Scheme(
        "pvc",
        "pvc://CLAIM/FOLDER: a claim name, then folders of letters, digits, '.', '_' and '-' that do not begin with "
        "'.' or '-'",
        "[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_][-A-Za-z0-9._]*)*",
    ),
    Scheme(
        "hf",
        "hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME@REVISION/FOLDER, with %2F for a slash in REVISION",
        f"{_WORD}/{_WORD}(@[A-Za-z0-9][-A-Za-z0-9._%]*)?(/{_WORD})*",
    ),
    Scheme("s3", "s3://BUCKET/PREFIX", f"{_WORD}{_SEGMENTS}*/?"),
    Scheme("gs", "gs://BUCKET/PREFIX", f"{_WORD}{_SEGMENTS}*/?"),
    Scheme("az", "az://CONTAINER/PREFIX", f"{_WORD}{_SEGMENTS}*/?"),
    Scheme("https", "https://HOST/FILE without a query", f"{_HOST}{_SEGMENTS}+"),
    Scheme(
        "oci",
        "oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST",
        f"{_HOST}(/[a-z0-9][-a-z0-9._]*)+(:{_WORD}|@sha256:[0-9a-f]+)",
    ),
)  # fmt: skip
"""Where weights may come from."""

CLAIM = "pvc"
"""The scheme of weights that lie on a claim already; those of every other scheme are downloaded to one."""
DOWNLOADED = f"^({'|'.join(scheme.name for scheme in SCHEMES if scheme.name != CLAIM)})://"
"""URIs of weights that are downloaded; one without a known scheme has another fault."""
ARCHIVE = "https"
"""The scheme of files without a version: a checksum says which is meant."""


def weights_uri(field: str) -> Ruled:
    """What a URI of weights under `field` must look like."""
    return Ruled(_begins(field), *(_reads(field, scheme) for scheme in SCHEMES))


def _begins(field: str) -> ValidationRule:
    pattern = f"^({'|'.join(scheme.name for scheme in SCHEMES)})://.+"
    names = ", ".join(f"{scheme.name}://" for scheme in SCHEMES)
    return ValidationRule(f"self.matches('{pattern}')", f"{field} must begin with one of {names}", matches(pattern))


def _reads(field: str, scheme: Scheme) -> ValidationRule:
    beginning, pattern = f"{scheme.name}://", f"^{scheme.name}://{scheme.pattern}$"
    fits = matches(pattern)
    return ValidationRule(
        f"!self.startsWith('{beginning}') || self.matches('{pattern}')",
        f"{field} with {beginning} must read {scheme.form}",
        lambda uri: not uri.startswith(beginning) or fits(uri),
    )

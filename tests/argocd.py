"""Argo CD's view of an object: the health check of the chart, run by a real Lua of the version that Argo CD has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lupa import lua51

SCRIPT = Path(__file__).resolve().parents[1] / "charts/graphpod/argocd/health.lua"


def health(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Status and message of an InferenceService."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(manifest, recursive=True)
    told = lua.execute(SCRIPT.read_text())
    return told.status, told.message

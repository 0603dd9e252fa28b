"""The rules with every duration divided by one factor, so that days of alerts pass in minutes."""

import copy
import re
from typing import Any

FACTOR = 60
"""An hour of the rules is a minute of the test."""
SCRAPE_SECONDS = 1
FLOOR_SECONDS = 4 * SCRAPE_SECONDS
"""A rate over fewer scrapes would have gaps."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONG_SECONDS, LONG_FACTOR = 6 * 3600, 1440
"""Windows from so long on are divided by more: three days are three minutes, and what six hours hold is soon gone."""
AGES = {"GraphpodOperatorStalled": 900, "GraphpodReconcileStuck": 60}
"""Seconds that an alert compares an age with; durations, too, though they are written as numbers."""

_RANGE = re.compile(r"(\[|offset )(\d+)([smhd])")


def seconds(text: str) -> int:
    """Of a duration as the rules write it."""
    return int(text[:-1]) * UNITS[text[-1]]


def scaled_seconds(text: str) -> int:
    """The same in the test: 0 stays 0, and nothing else is below the floor."""
    whole = seconds(text)
    factor = LONG_FACTOR if whole >= LONG_SECONDS else FACTOR
    return max(FLOOR_SECONDS, whole // factor) if whole else 0


def _scaled_expr(alert: str, expr: str) -> str:
    text = _RANGE.sub(lambda found: f"{found[1]}{scaled_seconds(found[2] + found[3])}s", expr)
    if (age := AGES.get(alert)) is not None:
        text, times = re.subn(rf"> {age}\b", f"> {age / FACTOR:g}", text)
        assert times == 1, f"{alert} compares no age with {age}"
    return text


def scaled(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These groups of rules, each duration divided by its factor. Names stay."""
    made = copy.deepcopy(groups)
    for group in made:
        for rule in group["rules"]:
            rule["expr"] = _scaled_expr(rule.get("alert", ""), rule["expr"])
            if "for" in rule:
                rule["for"] = f"{scaled_seconds(rule['for'])}s"
    return made

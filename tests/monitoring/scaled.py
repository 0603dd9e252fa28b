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
EXCLUDED = ("GraphpodTTFTBudgetBurnSlow", "GraphpodITLBudgetBurnSlow", "GraphpodErrorBudgetBurnSlow")
"""They look at three days, which are 72 minutes here."""
AGES = {"GraphpodOperatorStalled": 900, "GraphpodReconcileStuck": 60}
"""Seconds that an alert compares an age with; durations, too, though they are written as numbers."""

_RANGE = re.compile(r"(\[|offset )(\d+)([smhd])")


def seconds(text: str) -> int:
    """Of a duration as the rules write it."""
    return int(text[:-1]) * UNITS[text[-1]]


def scaled_seconds(text: str) -> int:
    """The same in the test: 0 stays 0, and nothing else is below the floor."""
    whole = seconds(text)
    return max(FLOOR_SECONDS, whole // FACTOR) if whole else 0


def _scaled_expr(alert: str, expr: str) -> str:
    text = _RANGE.sub(lambda found: f"{found[1]}{scaled_seconds(found[2] + found[3])}s", expr)
    if (age := AGES.get(alert)) is not None:
        text, times = re.subn(rf"> {age}\b", f"> {age / FACTOR:g}", text)
        assert times == 1, f"{alert} compares no age with {age}"
    return text


def scaled(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These groups of rules without the excluded alerts, each duration divided by FACTOR. Names stay."""
    made = copy.deepcopy(groups)
    for group in made:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") not in EXCLUDED]
        for rule in group["rules"]:
            rule["expr"] = _scaled_expr(rule.get("alert", ""), rule["expr"])
            if "for" in rule:
                rule["for"] = f"{scaled_seconds(rule['for'])}s"
    return made

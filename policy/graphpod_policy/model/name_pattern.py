"""Which regular expressions over names are matched in a bounded time.

A checkpoint brings its own patterns, and Python's `re` backtracks. A repeat of a group that repeats or chooses may take
a time that doubles with each character of a name, each repeat next to others takes a factor of its length, and each
choice next to others a factor of its alternatives.
"""

MOST_REPEATS, MOST_WAYS = 3, 4096


def may_backtrack(pattern: str) -> str | None:
    """Why a valid `pattern` may take long; None where it cannot."""
    groups, alternatives, repeats, ways, closed, place, before = [False], [1], 0, 1, False, 0, ""
    while place < len(pattern):
        char = pattern[place]
        alternatives[-1] += char == "|"
        if char == "?" and before not in ("*", "+", "?", "}"):  # behind a repeat it makes that reluctant
            ways *= 2
        if char in "*+{":
            repeats += 1
            if closed:
                return "it repeats a group that repeats or chooses"
        if char in "*+{?|":
            groups[-1] = True
        closed, before = False, char
        if char == "\\":
            place, before = place + 1, ""
        elif char == "[":
            place = _end_of_class(pattern, place)
        elif char == "(":
            groups.append(False)
            alternatives.append(1)
            # The question mark of (?:, (?= and the like is no choice.
            place += pattern.startswith("?", place + 1)
        elif char == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1] |= closed
            ways *= alternatives.pop()
        place += 1
    if repeats > MOST_REPEATS:
        return f"it has more than {MOST_REPEATS} repeats"
    return f"its choices have more than {MOST_WAYS} combinations" if ways * alternatives[0] > MOST_WAYS else None


def _end_of_class(pattern: str, place: int) -> int:
    """Where the class ends that begins at `place`. A bracket at its beginning is one of its characters."""
    place += 1 + pattern.startswith("^", place + 1)
    place += pattern.startswith("]", place)
    while place < len(pattern) and pattern[place] != "]":
        place += 1 + (pattern[place] == "\\")
    return place

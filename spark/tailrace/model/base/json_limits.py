"""Limits on JSON texts that every reader enforces, so that no text can exhaust the stack of the reader.

A text beyond a limit is rejected. The log sets the maximum size of a record (`Log.record_bytes`), the maximum number of
elements of a list (`Log.elements`), and the maximum number of levels (`Log.depth`).
"""

from __future__ import annotations

import re
from itertools import accumulate

DEPTH = 500
"""The largest maximum number of levels of nested objects and lists; the record itself is the first level."""


def beyond(text: str, depth: int = DEPTH, around: int = 0) -> str | None:
    """Return the reason for rejecting a JSON text with more than `depth` levels, or None if it has no more.

    The text need not be valid JSON. `around` is the number of levels around the text.

    >>> beyond('{"a": ' * 500 + "1" + "}" * 500), beyond('{"a": "' + "[" * 999 + '"}'), beyond("[" * 501)
    (None, None, 'nested more than 500 levels deep')
    """
    if text.count("[") + text.count("{") <= depth - around:
        return None
    brackets = _BRACKET.findall(_TEXT.sub("", text))
    deepest = max(accumulate(1 if one in "[{" else -1 for one in brackets), default=0)
    return too_deep(depth) if deepest > depth - around else None


def too_deep(depth: int) -> str:
    """Return the reason for rejecting a value with more levels, with a remedy if there is one."""
    return f"nested more than {depth} levels deep{': set depth in the log' if depth < DEPTH else ''}"


_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")

"""Limits on JSON texts that every reader enforces, so that no text can exhaust the stack of the reader.

A text beyond a limit is rejected. The log sets the maximum size of a record (`Log.record_bytes`), and the maximum
number of elements of a list (`Log.elements`).
"""

from __future__ import annotations

import re
from itertools import accumulate

DEPTH = 500
"""The maximum number of levels of nested objects and lists; the record itself is the first level."""

DEEP = f"nested more than {DEPTH} levels deep"
"""The reason for rejecting a text that is nested too deeply."""


def beyond(text: str) -> str | None:
    """Return a description of the limit that a JSON text exceeds, or None if the text exceeds no limit.

    The text need not be valid JSON.

    >>> beyond('{"a": ' * 500 + "1" + "}" * 500), beyond('{"a": "' + "[" * 999 + '"}'), beyond("[" * 501)
    (None, None, 'nested more than 500 levels deep')
    """
    if text.count("[") + text.count("{") <= DEPTH:
        return None
    brackets = _BRACKET.findall(_TEXT.sub("", text))
    return DEEP if max(accumulate(1 if one in "[{" else -1 for one in brackets), default=0) > DEPTH else None


_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")

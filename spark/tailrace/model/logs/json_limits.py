"""Limits of JSON that every reader enforces: a text beyond them is rejected and cannot exhaust the reader's stack.

The log sets the maximum size of a record (`Log.record_bytes`). The limits in this module are the limits of Spark's JSON
parser, or lower.
"""

from __future__ import annotations

import re
from itertools import accumulate

DEPTH = 500
"""The maximum number of levels of nested objects and lists; the record itself is the first level."""

DEEP = f"nested more than {DEPTH} levels deep"
"""The reason for rejecting a text with deeper nesting."""

DIGITS = 1000
"""The maximum number of digits of a number."""

LONG = f"a number of more than {DIGITS} digits"
"""The reason for rejecting a text with a longer number."""

NAME = 50_000
"""The maximum number of characters in the name of a field."""


def beyond(text: str) -> str | None:
    """Return which limit a JSON text exceeds, or None if it exceeds no limit. The text need not be valid JSON.

    >>> beyond('{"a": ' * 500 + "1" + "}" * 500), beyond('{"a": "' + "[" * 999 + '"}'), beyond("[" * 501)
    (None, None, 'nested more than 500 levels deep')
    >>> beyond('{"a": ' + "1" * 1001 + "}")
    'a number of more than 1000 digits'
    """
    if len(text) <= min(DEPTH, DIGITS):
        return None
    rest = _TEXT.sub("", text)
    if max(accumulate(1 if one in "[{" else -1 for one in _BRACKET.findall(rest)), default=0) > DEPTH:
        return DEEP
    return LONG if _NUMBER.search(rest) else None


_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_NUMBER = re.compile(rf"[0-9]{{{DIGITS + 1}}}")

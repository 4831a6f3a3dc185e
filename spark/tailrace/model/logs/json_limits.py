"""Limits on JSON texts that every reader enforces, so that no text can exhaust the stack of the reader.

A text beyond a limit is rejected. Each limit in this module is at most as high as the corresponding limit of Spark's
JSON parser. The maximum size of a record is set by the log (`Log.record_bytes`).
"""

from __future__ import annotations

import re
from itertools import accumulate

DEPTH = 500
"""The maximum number of levels of nested objects and lists; the record itself is the first level."""

DEEP = f"nested more than {DEPTH} levels deep"
"""The reason for rejecting a text that is nested too deeply."""

DIGITS = 1000
"""The maximum number of digits that a number in a JSON text may have."""

LONG = f"a number of more than {DIGITS} digits"
"""The reason for rejecting a text that contains a number with too many digits."""

NAME = 50_000
"""The maximum number of characters that the name of a field may have."""


def beyond(text: str) -> str | None:
    """Return a description of the limit that a JSON text exceeds, or None if the text exceeds no limit.

    The text need not be valid JSON.

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

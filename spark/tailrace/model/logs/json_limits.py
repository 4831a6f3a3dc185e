"""Limits of JSON that every reader keeps: a text beyond them is rejected, and takes no room on the reader's stack.

The log sets the size of a record (`Log.record_bytes`). The limits here are those of Spark's own parser, or lower.
"""

from __future__ import annotations

import re
from itertools import accumulate

DEPTH = 500
"""The levels to which objects and lists may be nested in one another, the record itself among them."""

DEEP = f"nested more than {DEPTH} levels deep"
"""The reason for rejecting a text that is nested deeper."""

DIGITS = 1000
"""The digits that a number may have."""

LONG = f"a number of more than {DIGITS} digits"
"""The reason for rejecting a text with a longer number."""

NAME = 50_000
"""The characters that the name of a field may have."""


def beyond(text: str) -> str | None:
    """Say which limit a JSON text goes beyond; one that is no JSON is taken as far as it goes.

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

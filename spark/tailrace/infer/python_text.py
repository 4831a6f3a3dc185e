"""Write constants and comments of Python source, from texts that may contain anything."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from unicodedata import east_asian_width

WIDTH = 120


def quoted(text: str) -> str:
    """Return the literal of a text, as a formatter writes it. It is printable, and has no line end.

    >>> print(quoted("a'b"), quoted('say "x"'), quoted("line\\nend"))
    "a'b" 'say "x"' "line\\nend"
    """
    double = text.count('"') <= text.count("'")
    mark = '"' if double else "'"
    made = []
    for one in text:
        if one in (mark, "\\"):
            made.append("\\" + one)
        elif one.isprintable():
            made.append(one)
        else:
            made.append(repr(one)[1:-1])
    return f"{mark}{''.join(made)}{mark}"


def width(text: str) -> int:
    """Return the number of columns that a text takes."""
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def comment(text: str, indent: int = 0) -> Iterator[str]:
    """Yield the lines of a comment; the text must be printable."""
    start = f"{' ' * indent}# "
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=True, break_on_hyphens=False
    )


def literal(text: str, indent: int, before: int) -> Iterator[str]:
    """Yield the lines of a text's literal, in parentheses if it does not fit a line after `before` characters."""
    whole = quoted(text)
    if before + width(whole) + 1 <= WIDTH:
        yield whole
        return
    yield "("
    # A formatter joins parts that fit one line together.
    for part in [text] if indent + 4 + width(whole) <= WIDTH else _cut(text, WIDTH - indent - 8):
        yield f"{' ' * (indent + 4)}{quoted(part)}"
    yield f"{' ' * indent})"


def _cut(text: str, room: int) -> Iterator[str]:
    """Cut a text behind commas and dots, such that the literals of the parts have at most about `room` characters."""
    rest = text
    while width(quoted(rest)) > room:
        end = room // 2
        while end < len(rest) and width(quoted(rest[: end + 1])) <= room:
            end += 1
        cut = max(rest.rfind(",", 0, end), rest.rfind("<", 0, end)) + 1
        cut = cut if cut > room // 4 else end
        yield rest[:cut]
        rest = rest[cut:]
    yield rest

"""The errors that Tailrace raises: one base class, always mixed with the built-in that fits.

A message names the value found, the value expected, and the setting or flag that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class TailraceError(Exception):
    """The base of every error that Tailrace raises on purpose."""


@dataclass(frozen=True)
class Fault:
    """A mistake in a definition or a setting.

    `path` names the place (`when.early.count`), `value` is the value there, `expected` describes valid values, and
    `remedy` says what to write instead.
    """

    path: str
    value: object
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value!r}: expected {self.expected}; {self.remedy}"


def unknown_column(path: str, column: object, columns: Iterable[str]) -> Fault:
    """Make the fault of a column that the log does not have; `columns` are the log's columns."""
    return Fault(path, column, f"one of the log's columns ({', '.join(columns)})", "declare it in the log's columns")


class DefinitionError(TailraceError, ValueError):
    """A definition that makes no sense. It names every fault at once, in `faults`.

    >>> print(DefinitionError("hourly", [Fault("where.size", 0, "more than zero", "write Fixed(hours(1))")]))
    definition 'hourly' has 1 fault:
      1. where.size = 0: expected more than zero; write Fixed(hours(1))
    """

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        self.name = name
        self.faults = tuple(faults)
        count = f"{len(self.faults)} fault" + ("" if len(self.faults) == 1 else "s")
        lines = [f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1)]
        super().__init__("\n".join([f"definition {name!r} has {count}:", *lines]))


class ClockError(TailraceError, ValueError):
    """A clock that went back: watermarks and processing times never do (rule T3)."""


class AnswerError(TailraceError, ArithmeticError):
    """An exact result that does not fit its type, refused rather than rounded or wrapped."""


class RecordError(TailraceError, ValueError):
    """A record that a definition cannot take: it is rejected with this reason, and the others go on."""


def failure(error: Exception) -> str:
    """Write the reason for rejecting a record that makes custom code fail: our own errors by their words alone.

    The reason is a text that a table can hold, whatever the code raises.
    """
    try:
        words = str(error)
    except Exception:
        words = "it does not say what"
    said = words if isinstance(error, TailraceError) else f"{type(error).__name__}: {words}"
    return said.encode(errors="backslashreplace").decode()[:_MOST]


def line_of(error: Exception) -> str:
    """Write an error in one line: an error of ours by the first paragraph of its words, another after its kind.

    >>> line_of(ValueError("odd\\nand more")), line_of(KeyError()), line_of(RecordError("so\\nit is\\n\\nmore"))
    ('ValueError: odd', 'KeyError', 'so it is')
    """
    words, kind = str(error).strip(), type(error).__name__
    if isinstance(error, TailraceError):
        return " ".join(words.split("\n\n", 1)[0].split()) or kind
    if (raised := _RAISED.search(words)) is not None:
        # An executor's Python failed: the error that it raised stands under its trace.
        return raised[1]
    first = next(iter(words.splitlines()), "")
    return f"{kind}: {first}" if first else kind


_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
"""The trace of a Python error, with the line that names the error."""

_MOST = 500
"""The length to which an error's text is cut, in characters."""

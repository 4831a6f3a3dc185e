"""The errors that Tailrace raises.

Each error class derives from `TailraceError` and from a suitable built-in exception. An error message names the invalid
value, the expected value, and the setting or flag that solves the problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


class TailraceError(Exception):
    """The base class of every error that Tailrace raises on purpose."""


class RemedyError(TailraceError):
    """An error with a remedy: `found` describes the problem, and `mend` says how the user can correct it."""

    def __init__(self, found: str, mend: str) -> None:
        self.found, self.mend = found, mend
        super().__init__(f"{found}: {mend}" if mend else found)


@dataclass(frozen=True)
class Fault:
    """A mistake in a definition or a setting.

    `path` names the location (for example `when.early.count`), and `value` is the value found there. `expected`
    describes the valid values, and `remedy` says what the user should write instead.
    """

    path: str
    value: object
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value!r}: expected {self.expected}; {self.remedy}"


def unknown_column(path: str, column: object, columns: Iterable[str]) -> Fault:
    """Return the fault for a reference to a column that the log does not have; `columns` are the log's columns."""
    return Fault(path, column, f"one of the log's columns ({', '.join(columns)})", "declare it in the log's columns")


def whole_faults(path: str, value: object, remedy: str, least: int = 1) -> Iterator[Fault]:
    """Yield a fault if `value` is not a whole number, or if `value` is less than `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        yield Fault(path, value, f"a whole number of at least {least}", remedy)


def share_faults(path: str, value: object, remedy: str) -> Iterator[Fault]:
    """Yield a fault if `value` is not a share, that is, a number between 0 and 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        yield Fault(path, value, "a share between 0 and 1", remedy)


class DefinitionError(TailraceError, ValueError):
    """The error for an invalid definition; `faults` contains all faults of the definition.

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


def raise_faults(name: object, faults: Iterable[Fault]) -> None:
    """Raise `DefinitionError` if the definition with this name has faults."""
    if found := list(faults):
        raise DefinitionError(str(name), found)


class ClockError(TailraceError, ValueError):
    """The error for a clock that must not follow the previous epoch's clock (rule T3).

    The watermark or the processing time is lower than in the previous epoch, or the epoch's number is not higher than
    the previous epoch's number.
    """


class AnswerError(TailraceError, ArithmeticError):
    """The error for an exact result that does not fit its type; the result is neither rounded nor wrapped."""


class RecordError(TailraceError, ValueError):
    """The error for a record that a definition cannot process.

    Only this record is rejected. The error's message is stored as the reason for the rejection.
    """


def failure(error: Exception) -> str:
    """Return the reason for rejecting a record, given the error that custom code raised for the record.

    For a Tailrace error, the reason is the error's message; for other errors, the reason is the error's type and
    message. The reason can always be stored in a table, because it is valid UTF-8 and has a maximum length.
    """
    try:
        words = str(error)
    except Exception:
        words = "it does not say what"
    said = words if isinstance(error, TailraceError) else f"{type(error).__name__}: {words}"
    return said.encode(errors="backslashreplace").decode()[:_MOST]


def line_of(error: Exception) -> str:
    """Describe an error in one line.

    For a Tailrace error, the line is the first paragraph of the error's message. For other errors, the line is the
    error's type and the first line of its message.

    >>> line_of(ValueError("odd\\nand more")), line_of(KeyError()), line_of(RecordError("so\\nit is\\n\\nmore"))
    ('ValueError: odd', 'KeyError', 'so it is')
    """
    words, kind = str(error).strip(), type(error).__name__
    if isinstance(error, TailraceError):
        return " ".join(words.split("\n\n", 1)[0].split()) or kind
    if (raised := _RAISED.search(words)) is not None:
        # If Python code fails on an executor, the message of the error is a traceback. Return the line of the traceback
        # that names the original error.
        return raised[1]
    first = next(iter(words.splitlines()), "")
    return f"{kind}: {first}" if first else kind


_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
"""A regular expression for a Python traceback; its only group matches the line that names the error."""

_MOST = 500
"""The maximum length of the reason for a rejection, in characters; a longer text is cut off."""

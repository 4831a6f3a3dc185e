"""One log for definitions that declare the log with different columns: the log with all of these columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.types import column_of
from tailrace.model.logs.log import Columns, Log

_OF_COLUMNS = ("fields", "aliases", "instants", "rounding")
"""The options of a log that map columns to something."""

_MERGED = ("columns", *_OF_COLUMNS, "required", "rest", "grows")


class LogConflictError(TailraceError, ValueError):
    """The error for two declarations of a log that contradict each other."""


def widest(declared: Iterable[tuple[str, Log]]) -> Log:
    """Return the log with the columns of several declarations of one log.

    `declared` has pairs: the name of a reader, which error messages mention, and the log as this reader declares it.
    The declarations may have different columns. Raises `LogConflictError` if they differ in anything else, such as the
    type of a column.

    >>> narrow = Log(name="rides", columns={"at": "timestamp", "km": "int"}, event_time="at")
    >>> wide = replace(narrow, columns={**narrow.columns, "city": "string"})
    >>> [*widest([("hourly", narrow), ("daily", wide)]).columns]
    ['at', 'km', 'city']
    """
    (reader, found), *others = declared
    for other, log in others:
        if log is found or (log == found and dict(log.declared) == dict(found.declared)):
            continue
        if differences := list(_differences(reader, found, other, log)):
            raise LogConflictError(
                f"the definitions {reader} and {other} declare the log {log.name} in two ways, of which the stream can "
                f"land only one: {'; '.join(differences)}: import one declaration, or declare both alike"
            )
        reader, found = (other, _merged(log, found)) if len(log.columns) > len(found.columns) else (reader, found)
        found = _merged(found, log)
    return found


def _merged(wide: Log, narrow: Log) -> Log:
    """Return the log `wide` with the columns that only `narrow` has."""
    given: dict[str, Any] = {name: _of_columns(narrow, name) | _of_columns(wide, name) for name in _OF_COLUMNS}
    for name in ("instants", "rounding"):
        if not isinstance(getattr(wide, name), Mapping) and not isinstance(getattr(narrow, name), Mapping):
            given[name] = getattr(wide, name)
    return replace(
        wide,
        columns=Columns({**wide.declared, **{n: t for n, t in narrow.declared.items() if n not in wide.declared}}),
        required=tuple(dict.fromkeys([*wide.required, *narrow.required])),
        rest=wide.rest or narrow.rest,
        grows=wide.grows or narrow.grows,
        **given,
    )


def _of_columns(log: Log, option: str) -> dict[str, Any]:
    given = getattr(log, option)
    return dict(given) if isinstance(given, Mapping) else {}


def _differences(reader: str, one: Log, other_reader: str, other: Log) -> Iterator[str]:
    """Yield a text for each contradiction between two declarations of a log."""
    if type(one) is not type(other):
        yield f"it is a {type(one).__name__} in {reader}, a {type(other).__name__} in {other_reader}"
        return
    shared = [name for name in one.declared if name in other.declared]
    for name in shared:
        if one.declared[name] != other.declared[name]:
            yield f"{name} is {one.declared[name]} in {reader}, {other.declared[name]} in {other_reader}"
    for field in fields(one):
        own, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name in _OF_COLUMNS and not isinstance(own, str) and not isinstance(theirs, str):
            own, theirs = ({n: v for n, v in _of_columns(of, field.name).items() if column_of(n) in shared}
                           for of in (one, other))  # fmt: skip
        elif field.name == "required":
            own, theirs = ([name for name in some if name in shared] for some in (own, theirs))
        elif field.name == "rest":
            own, theirs = (own, theirs) if own and theirs else (None, None)
        elif field.name in _MERGED and field.name not in _OF_COLUMNS:
            continue
        if own != theirs:
            yield f"{field.name} is {own!r} in {reader}, {theirs!r} in {other_reader}"

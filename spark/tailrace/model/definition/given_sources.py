"""Check that each log that a stream's definitions read has a source of its own.

The command line, the jobs of runners, the DAGs and the stream itself all check the sources with these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tailrace.model.definition.definition import Definition


def readers_of(definitions: Iterable[Definition]) -> dict[str, list[str]]:
    """Map the name of each log that a source fills to the names of the definitions that read it, sorted by log."""
    readers = dict[str, list[str]]()
    for definition in definitions:
        for log in definition.sources:
            readers.setdefault(log.name, []).append(definition.name)
    return dict(sorted(readers.items()))


def unnamed_source(definitions: Iterable[Definition]) -> str | None:
    """Return the fault of a source that is given without the name of its log, or None if there is only one log."""
    if len(logs := readers_of(definitions)) == 1:
        return None
    return f"the definitions read {len(logs)} logs, {', '.join(logs)}"


def source_faults(
    definitions: Iterable[Definition], given: Mapping[str, str], remedy: Callable[[str], str]
) -> list[str]:
    """Return the faults of the sources that are given by the names of their logs; the list is empty if there are none.

    `given` describes each source for messages. `remedy` says what a user writes to give a log a source.
    """
    readers = readers_of(definitions)
    faults = [
        f"log {log}, which {' and '.join(names)} {'reads' if len(names) == 1 else 'read'}, has no source: {remedy(log)}"
        for log, names in readers.items()
        if log not in given
    ]
    faults += [
        f"no definition reads a log {log}, which {place} is for: expected one of {', '.join(readers)}; leave it out"
        for log, place in given.items()
        if log not in readers
    ]
    places = list(given.values())
    twice = sorted({place for place in places if places.count(place) > 1})
    return faults + [f"{place} is given for two logs: a record is of one" for place in twice]

"""Find the records for a search text and describe what happened to each record, with links to the record's windows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.table import Table

from tailrace.lake.schema.filters import Filter
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.definition import Definition
from tailrace.serve.reading.event_time import TimeRange
from tailrace.serve.reading.lake_reader import Session, digest_of
from tailrace.trace.steps import InWindow, Step
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import LandedRecord, RejectedRecord, Wanted, WantedError, find_in_logs

MOST_FOUND = 5
"""The maximum number of records that a search shows."""

MOST_LETTERS = 1_000
"""The maximum number of characters in a search text."""

_PLACE = re.compile(r"\S+:[0-9]{1,18}")
_CONDITION = re.compile(r"[=<>]|\b(is|in|like|between)\b", re.IGNORECASE)


Outcome: TypeAlias = "tuple[Step, Mapping[str, str] | None]"
"""The outcome of a record in one definition, and the query parameters that address the record's window.

The query parameters are None if the window has no page.
"""


@dataclass(frozen=True)
class SearchResult:
    """The records that a search found, and the outcomes of each record.

    If no record was found, `says` is a message that states the reason.
    """

    records: tuple[tuple[LandedRecord, tuple[Outcome, ...]], ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()
    says: str = ""
    more: bool = False


def parse_wanted(text: str) -> Wanted:
    """Parse the text of a search: a condition, a position written as SOURCE:OFFSET, or an id whose parts are separated
    by spaces.

    >>> parse_wanted("carrier = 'AA'").where, parse_wanted("00003.json:15").offset, parse_wanted("a 7").id
    ("carrier = 'AA'", 15, ('a', '7'))
    """
    if _CONDITION.search(text):
        return Wanted(where=text)
    if _PLACE.fullmatch(text):
        return Wanted.at(text)
    return Wanted(id=tuple(text.split()))


def search(session: Session, stage: Definition, text: str) -> SearchResult:
    """Search a stage's logs for the records that match a text, and find the outcomes of each of these records.

    A record has one outcome in each definition that processes the record.
    """
    asked = parse_wanted(text)
    rows = None if asked.offset is None else partial(_at_place, session, asked)
    try:
        found = find_in_logs(session.lake, stage.sources, asked, MOST_FOUND, rows)
    except WantedError as error:
        return SearchResult(says=str(error))
    tracing = Tracing(session.lake, stage)
    stages = {one.name: one for one in tracing.chain}
    records = tuple(
        (record, tuple((step, _window_query(session, stages[step.definition], step)) for step in tracing.of(record)))
        for one in found
        for record in one.landed
    )
    rejected = tuple(record for one in found for record in one.rejected)
    nothing = "" if records or rejected else "There is no such record, and none was rejected."
    return SearchResult(records, rejected, nothing, any(one.more for one in found))


def _at_place(session: Session, asked: Wanted, table: Table, where: Filter) -> list[dict[str, Any]]:
    """Use DuckDB to read the rows at a position in a source.

    This search reads nearly all files of the log. Their statistics exclude only a few files, because nearly every file
    has a row with a small offset.
    """
    source = str(asked.source)
    with session.relation(table, where) as name:
        at = "_offset = ? AND (_source = ? OR ends_with(_source, ?))"
        query = f"SELECT * FROM {name} WHERE {at} ORDER BY _epoch LIMIT {MOST_FOUND + 1}"
        return session.all(query, [asked.offset, source, f"/{source}"])


def _window_query(session: Session, stage: Definition, step: Step) -> Mapping[str, str] | None:
    if not isinstance(step, InWindow) or not (step.panes or step.late):
        return None
    return TimeRange(step.window.start, step.window.end).query | {"key": _digest(session, stage, step)}


def _digest(session: Session, stage: Definition, step: InWindow) -> str:
    """Return the digest of a key (`digest_of`). Web addresses contain the digest in place of the key."""
    own = tables_of(stage)
    schema, keys = iceberg_schema(own.ledger).as_arrow(), own.keys
    if not keys:
        return str(session.one(f"SELECT {digest_of(())} AS digest")["digest"])
    typed = pa.schema([schema.field(name) for name in keys])
    name = session.known_as("_one_key", pa.Table.from_pylist([dict(zip(keys, step.key, strict=True))], schema=typed))
    return str(session.one(f"SELECT {digest_of(keys)} AS digest FROM {name}")["digest"])

"""Return the state of a pipeline's stage at the end of an epoch: its clock, its open windows, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import PANE, PARTIAL, Column, Contract
from tailrace.lake.schema.filters import at_most, equal, every
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.lake.schema.pipeline_tables import answer_contract, key_columns
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.results.answers import latest_answers
from tailrace.sql.terms import Query, Relation, all_of, quoted
from tailrace.verify.kept_tables import check_new, keep_rows
from tailrace.verify.recorded_epochs import Recording

OPEN = "__open"
"""The suffix of the name of the table that stores the open windows."""

_INSTANTS = {"window_start", "window_end", "waiting_since"}
"""The columns of an open window whose values are microseconds and are shown as timestamps."""


@dataclass(frozen=True)
class AsOf:
    """The state of a stage at the end of the epoch of `clock`; `latest` is the last epoch of the ledger.

    `windows` is the number of open windows, and `answers` is the number of answers; if a key was given, only the
    windows and answers of this key are counted. `first_windows` and `first_answers` are some of these windows and
    answers, as rows. If all open windows and answers were stored in tables, `tables` names these tables.
    """

    clock: Clock
    latest: int
    windows: int
    answers: int
    first_windows: tuple[Mapping[str, Any], ...]
    first_answers: tuple[Mapping[str, Any], ...]
    engine: EngineChoice
    tables: tuple[str, ...] = ()


def as_of(
    lake: Lake,
    pipeline: Pipeline,
    epoch: int,
    *,
    rows: int = 10,
    key: Sequence[Any] | None = None,
    keep: str | None = None,
) -> AsOf:
    """Return the state of one stage at the end of an epoch, for one key or for all keys.

    At most `rows` open windows and at most `rows` answers are returned: the windows that end earliest, and the answers
    of the latest windows. A backfill's results are included if the backfill read the log up to this epoch or an earlier
    epoch. `keep` names a new table for all answers; the table for the open windows has the same name with `OPEN`
    appended. Raises `ReplayError` if the ledger does not have the epoch, if the epoch's clock is no longer known, or if
    one of the new tables cannot be created or already exists.
    """
    recording = Recording(lake, pipeline)
    recording.check([epoch], fold=False)
    if keep is not None:
        check_new(lake, keep, f"{keep}{OPEN}")

    def work(session: Session) -> AsOf:
        windows, answers = (
            session.materialized(text)
            for text in (_windows(recording, session, epoch), _answers(recording, session, epoch))
        )
        tables: tuple[str, ...] = ()
        if keep is not None:
            texts = (all_of(relation) for relation in (answers, windows))
            tables = keep_rows(session, *zip(_contracts(pipeline, epoch, keep), texts, strict=True))
        of_key = "" if key is None else _of(session, pipeline, key)
        windows, answers = (Relation(f"{relation} w{of_key}") for relation in (windows, answers))
        soonest = join_items(["window_end", "window_start"], key_names(pipeline))
        newest = join_items(["window_end DESC", "window_start DESC"], key_names(pipeline))
        return AsOf(
            recording.clock(epoch),
            recording.last,
            session.count(windows),
            session.count(answers),
            tuple(session.readable_rows(Query(f"SELECT * FROM {windows} ORDER BY {soonest} LIMIT {rows}"))),
            tuple(session.readable_rows(Query(f"SELECT * FROM {answers} ORDER BY {newest} LIMIT {rows}"))),
            session.choice,
            tables,
        )

    return recording.run("as of", recording.reads(epoch, epoch)[:1], work)


def _windows(recording: Recording[Pipeline], session: Session, epoch: int) -> Query:
    """Return SQL for the windows that are open at the end of the epoch; each row has a window's state."""
    ledger = recording.ledger(session, every(equal("kind", PARTIAL), at_most("epoch", epoch)))
    partials = Relation(f"(SELECT * FROM {ledger} WHERE kind = '{PARTIAL}' AND epoch <= {epoch}L)")
    open_ = Rows(recording.definition).within_reach(partials, recording.clock(epoch).watermark)
    items = [
        f"TIMESTAMP_MICROS({name}) AS {name}" if name in _INSTANTS else quoted(name)
        for name in state_types(recording.definition)
    ]
    return Query(f"SELECT {', '.join(items)} FROM ({open_})")


def _answers(recording: Recording[Pipeline], session: Session, epoch: int) -> Query:
    """Return SQL for the answers at the end of the epoch: each window's last pane, if it is not a retraction."""
    ledger = recording.ledger(session, every(equal("kind", PANE), at_most("epoch", epoch)))
    panes = Relation(f"(SELECT * FROM {ledger} WHERE kind = '{PANE}' AND epoch <= {epoch}L)")
    return Query(
        f"SELECT * EXCEPT (retraction) FROM ({latest_answers(recording.definition, panes)}) WHERE NOT retraction"
    )


def _of(session: Session, pipeline: Pipeline, key: Sequence[Any]) -> str:
    """Return an SQL clause `WHERE …` that selects the rows with the given key.

    The query must give the rows the alias `w`.
    """
    types = key_columns(pipeline)
    schema = arrow_schema(types)
    relation = session.relation_of(pa.Table.from_pylist([dict(zip(types, key, strict=True))], schema))
    same = equal_in("w", "k", key_names(pipeline))
    return f" WHERE EXISTS (SELECT 1 FROM {relation} k WHERE {same})"


def _contracts(pipeline: Pipeline, epoch: int, keep: str) -> tuple[Contract, Contract]:
    """Return the contracts of the two tables that store all answers and all open windows."""
    doc = f"of pipeline {pipeline.name} as of epoch {epoch}"
    types = {name: "timestamp" if name in _INSTANTS else type for name, type in state_types(pipeline).items()}
    columns = {name: Column(type, "as a partial of the ledger has it") for name, type in types.items()}
    nullable = {name: replace(column, required=False) for name, column in answer_contract(pipeline).columns.items()}
    answers = Contract(keep, f"the answers {doc}", nullable)
    return answers, Contract(f"{keep}{OPEN}", f"the open windows {doc}", columns)

"""The history of one window of a key: the window's panes in order, its records and late records, and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.lake import head_of, lineage, properties_of
from tailrace.lake.commit.epoch_properties import CLOCK, EpochCommit
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import LATE, PANE
from tailrace.lake.schema.filters import Filter, among, before, every, since, up_to
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.combiners.own import OwnWindows
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.panes import settled_indexes
from tailrace.plots.plot import PanePlot, PlotPane, PlotRecord, Value
from tailrace.serve.reading.event_time import TimeRange
from tailrace.serve.reading.lake_reader import Session, cut_columns, digest_of
from tailrace.serve.reading.shown_text import value_text, window_text
from tailrace.trace.key_history import LedgerLate, LedgerPane, ledger_late, ledger_pane

MOST_PANES = 200
"""The maximum number of panes that a page shows for a window; if there are more, the page shows the latest panes."""

MOST_RECORDS = 500
"""The maximum number of records that a plot shows for a window; the records that arrived first are shown."""

_FIRED = ("timing", "retraction", "is_last", "watermark", "processing_time", "writer")
_INSTANTS = {*SPAN, "watermark", "processing_time", "event_time"}
_OF_LATE = ("event_time", "epoch", "behind", "reason", "source_epoch", "source_partition", "source_offset")


@dataclass(frozen=True)
class WindowStory:
    """The history of one window of a key, limited to the size of a page.

    `key` has the values of the key's columns, cut to the length that a page shows. `cut` is True if the window has more
    panes than the page shows. `records` is None if the log alone does not determine which records are in the window.
    `watermarks` lists the watermark's changes as pairs: a processing time, and the watermark that applies from that
    time on.
    """

    pipeline: Pipeline
    window: TimeRange
    key: Mapping[str, Any]
    panes: tuple[LedgerPane, ...]
    late: tuple[LedgerLate, ...]
    records: tuple[PlotRecord, ...] | None
    watermark: int
    epoch: int
    watermarks: tuple[tuple[int, int], ...]
    cut: bool

    @property
    def answer(self) -> LedgerPane | None:
        """The pane with the current answer.

        The value is None if the answer was retracted or the window has no answer yet.
        """
        own = [pane for pane in self.panes if (pane.window.start, pane.window.end) == self._span]
        return own[-1] if own and not own[-1].retraction else None

    @property
    def _span(self) -> tuple[int, int]:
        return self.window.first, self.window.last

    @property
    def closes(self) -> int:
        """The watermark at which the window closes."""
        return self.pipeline.closes(self.window.last)

    @property
    def columns(self) -> list[str]:
        """The columns of the ledger that contain the panes' values."""
        return self.pipeline.columns_shown(pane.values for pane in self.panes)

    @property
    def drawn_values(self) -> list[str]:
        """The results that the plot can show: all numeric results, or the first result if no result is numeric."""
        numbers = [name for name in self.pipeline.results if _is_number(self._one(name))]
        return numbers or list(self.pipeline.results)[:1]

    def _one(self, name: str) -> object:
        return next((pane.answer[name] for pane in self.panes if pane.answer.get(name) is not None), None)

    def plot(self, value: str | None = None) -> PanePlot:
        """Plot the history of one result column of the window."""
        name = value if value in self.drawn_values else self.drawn_values[0]
        key = ", ".join(f"{column} = {value_text(one)}" for column, one in self.key.items()) or "all"
        return PanePlot(
            title=self.pipeline.name,
            subtitle=window_text(*self._span),
            key=key,
            value=name,
            panes=[PlotPane.of(pane, _drawn_value(pane.answer.get(name))) for pane in self.panes],
            records=self.records or (),
            watermark=[(moment(at), moment(mark)) for at, mark in self.watermarks],
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _drawn_value(value: object) -> Value:
    """Convert a result for the plot: a number stays a number, and any other value becomes a text of limited length."""
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | float) or value is None else value_text(value)


def window_story(session: Session, pipeline: Pipeline, window: TimeRange, key: str) -> WindowStory | None:
    """Read the history of a window; return None if the ledger has no row for the window. `key` is the key's digest.

    If the pipeline's windows merge (such as session windows), the history also includes the panes of those windows of
    the same key that touch this window.
    """
    ledger = session.lake.table(ledger_name(pipeline.name))
    there = ledger.schema().column_names
    keys = [name for name in pipeline.key if name in there]
    results = [name for name in pipeline.answer_columns if name in there]
    columns = ["kind", *SPAN, *VERSION, *_FIRED, *_OF_LATE]
    whole = ["answer"] if "answer" in there else []
    with session.relation(ledger, _files_of_window(pipeline, window), [*keys, *columns, *results, *whole]) as name:
        plain = [f"epoch_us({one}) AS {one}" if one in _INSTANTS else one for one in columns]
        cut = cut_columns(ledger.schema(), [*keys, *results])
        rows = f"(SELECT *, {digest_of(keys)} AS _key FROM {name})"
        if pipeline.where.merges:
            touches = "epoch_us(window_start) <= $last AND epoch_us(window_end) >= $first"
        else:
            touches = "epoch_us(window_start) = $first AND epoch_us(window_end) = $last"
        # In discarding mode, the values of a pane count only new records; the `answer` column contains the whole answer
        # at that time.
        packed = ", ".join(cut_columns(ledger.schema(), results, "answer."))
        answers = [f"(SELECT s FROM (SELECT {packed}) s) AS answer"] if whole and results else []
        items = ", ".join([*plain, *cut, *answers])
        select = f"SELECT {items} FROM {rows} WHERE _key = $key AND {touches} AND kind = "
        values = {"first": window.first, "last": window.last, "key": key}
        order = "generation DESC, epoch DESC, pane_index DESC, retraction"
        panes = session.all(f"{select}'{PANE}' ORDER BY {order} LIMIT {MOST_PANES + 1}", values)
        late = session.all(f"{select}'{LATE}' ORDER BY epoch, event_time LIMIT {MOST_PANES}", values)
    if not panes and not late:
        return None
    missed = tuple(ledger_late(row) for row in late)
    head = head_of(ledger)
    return WindowStory(
        pipeline,
        window,
        {one: (panes or late)[0][one] for one in keys},
        _order_panes(
            pipeline, [row | {n: None for n in pipeline.answer_columns if n not in row} for row in panes[:MOST_PANES]]
        ),
        missed,
        _records(session, pipeline, window, key, missed),
        head.number("watermark", BEGINNING),
        head.number("epoch"),
        _clock(ledger, panes),
        len(panes) > MOST_PANES,
    )


def _files_of_window(pipeline: Pipeline, window: TimeRange) -> Filter:
    """Return a filter for the files that may have rows of the window.

    If the pipeline's windows merge (such as session windows), the filter also selects files that may have rows of
    windows that touch this window.
    """
    where = [among("kind", (PANE, LATE)), up_to("window_start", window.last if pipeline.where.merges else window.first)]
    return every(*where, since("window_end", window.first if pipeline.where.merges else window.last))


def _order_panes(pipeline: Pipeline, rows: Iterable[Mapping[str, Any]]) -> tuple[LedgerPane, ...]:
    panes = sorted(
        (ledger_pane(pipeline, row) for row in rows), key=lambda one: (one.version, not one.retraction, one.window)
    )
    places = settled_indexes(((one.window, one.version.generation), one.timing, one.retraction) for one in panes)
    return tuple(replace(one, settled_index=place) for one, place in zip(panes, places, strict=True))


def _records(
    session: Session, pipeline: Pipeline, window: TimeRange, key: str, late: Sequence[LedgerLate]
) -> tuple[PlotRecord, ...] | None:
    """Read the records of the window from the log; return None if the log alone does not determine these records.

    For a session window, read all records of the key between the window's start and end, because any such record would
    have been merged into the session.
    """
    log, table = pipeline.log, session.lake.find(pipeline.log.name) if pipeline.log.landed else None
    # The event time of a record may lie outside its custom window, so the log alone does not determine the records.
    own = isinstance(pipeline.where, OwnWindows)
    if table is None or pipeline.each or pipeline.keep is not None or own:
        return None
    at, there = log.event_time, table.schema().column_names
    columns = [*pipeline.key, at, "_epoch", "_source", "_offset", "_arrival"]
    if not set(columns) <= set(there) or window.first <= BEGINNING or window.last >= END_OF_TIME:
        return None
    missed = {one.source for one in late}
    with session.relation(table, every(since(at, window.first), before(at, window.last)), columns) as name:
        moment_of = f"epoch_us({name_of(at)})"
        query = (
            f"SELECT {moment_of} AS happened, epoch_us(_arrival) AS known, _epoch, _source, _offset FROM {name} "
            f"WHERE {moment_of} >= ? AND {moment_of} < ? AND {digest_of(pipeline.key)} = ? AND _arrival IS NOT NULL "
            f"ORDER BY known LIMIT {MOST_RECORDS}"
        )
        rows = session.all(query, [window.first, window.last, key])
    return tuple(
        PlotRecord(
            moment(row["happened"]),
            moment(row["known"]),
            f"epoch {row['_epoch']}, record {row['_offset']}",
            too_late=(row["_epoch"], row["_source"], row["_offset"]) in missed,
        )
        for row in rows
    )


def _clock(ledger: Any, panes: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int], ...]:
    """Read the watermark's changes from the panes, and from those commits of the ledger whose snapshots have not
    expired.
    """
    steps = {(int(row["processing_time"]), int(row["watermark"])) for row in panes if row["watermark"] is not None}
    for snapshot in lineage(ledger, head_of(ledger).snapshot):
        properties = properties_of(snapshot)
        if CLOCK[1] in properties:
            clock = EpochCommit.of(properties).clock
            steps.add((clock.processing_time, clock.watermark))
    return tuple(sorted(step for step in steps if step[1] > BEGINNING and step[0] > BEGINNING))

"""Find all records of an answer's key and window, including late records, without a JVM.

If the answer belongs to a later stage, the previous stage's answers are found instead of records. The records of a log
are filtered by event time and by those key columns that no step computes. The steps and windows of the definition are
then applied to each remaining record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import processing_times
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.filters import Filter, above, after, at_most, before, equal, every, since, up_to
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.combiners.own import OwnWindows
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.logs.derived_logs import Arrivals, Panes, Union
from tailrace.model.logs.log import Log
from tailrace.model.step.stages import record_of
from tailrace.model.windows.panes import Key
from tailrace.model.windows.windows import Window
from tailrace.trace.key_history import History, KeyValue, LedgerPane, filter_value, history, ledger_pane
from tailrace.trace.steps import InWindow, State
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import LandedRecord, landed_of, rows_of


@dataclass(frozen=True)
class OfRecord:
    """A record that belongs to an answer's key and window, and the record's state in this window."""

    record: LandedRecord
    state: State


@dataclass(frozen=True)
class OfAnswer:
    """An answer of the previous stage that is counted in a later stage's answer."""

    key: Key
    window: Window
    pane: LedgerPane


@dataclass(frozen=True)
class AnswerRecords:
    """An answer, with the records or the previous stage's answers from which it was computed.

    `more` is True if there are more records or answers than `records` and `answers` contain.
    """

    key: tuple[KeyValue, ...]
    window: Window | None
    answer: LedgerPane | None
    records: tuple[OfRecord, ...] = ()
    answers: tuple[OfAnswer, ...] = ()
    more: bool = False


def answer_records(lake: Lake, pipeline: Pipeline, key: Sequence[KeyValue], at: int, limit: int) -> AnswerRecords:
    """Find up to `limit` records that belong to a key's answer for the window that starts at `at` or contains `at`.

    Raises `LakeError` if the pipeline reads the output of a computation, map or join, because that output's rows have
    no position in a log.
    """
    past = history(lake, pipeline, key, at)
    window = _window(past)
    if window is None:
        return AnswerRecords(tuple(key), None, None)
    reading = _Reading(lake, pipeline, tuple(key), window)
    later = isinstance(pipeline.log, Panes)
    records = () if later else tuple(islice(reading.records(), limit + 1))
    answers = tuple(islice(reading.answers(), limit + 1)) if later else ()
    more = len(records) + len(answers) > limit
    return AnswerRecords(tuple(key), window, past.answer(window), records[:limit], answers[:limit], more)


def _window(past: History) -> Window | None:
    standing = [one for one in past.windows if past.answer(one) is not None]
    return max(standing or past.windows, key=lambda one: one.end - one.start, default=None)


@dataclass(frozen=True)
class _Reading:
    lake: Lake
    pipeline: Pipeline
    key: Key
    window: Window

    def records(self) -> Iterator[OfRecord]:
        """Yield the records of the pipeline's logs that have the answer's key and are in the answer's window."""
        if not all(part.landed for part in self.pipeline.log.parts):
            raise LakeError(
                f"{self.pipeline.name} reads {self.pipeline.log.name}, whose rows have no place in a log: trace a "
                "record of the log forward, or ask of an answer of the definition before"
            )
        tracing = Tracing(self.lake, self.pipeline)
        for log in self.pipeline.log.parts:
            table = self.lake.table(log.name)
            names = match_names(table, log.columns, {field.name for field in table.schema().fields})
            for row in rows_of(table.scan(row_filter=self._within(log, names)).to_arrow_batch_reader()):
                landed = landed_of(log, names, row)
                steps = (one for one in tracing.in_last(landed) if isinstance(one, InWindow))
                own = next((one for one in steps if one.key == self.key and one.window == self.window), None)
                if own is not None:
                    yield OfRecord(landed, own.state)

    def answers(self) -> Iterator[OfAnswer]:
        """Yield the previous stage's current answers that have the later answer's key and lie in its window."""
        earlier, pipeline = self.pipeline.earlier, self.pipeline
        assert earlier is not None
        # The event time of an answer is the last microsecond of its window, or another time inside the window. So the
        # answers of all windows that may have their event time in this window are read.
        reach = earlier.where.reach + (earlier.where.longest or 0)
        bounds = [] if self.window.start <= BEGINNING else [after("window_end", self.window.start)]
        bounds += [] if self.window.end >= END_OF_TIME - reach else [up_to("window_start", self.window.end + reach)]
        where = every(equal("kind", PANE), *bounds)
        latest: dict[tuple[Key, Window], LedgerPane] = {}
        for row in rows_of(self.lake.table(ledger_name(earlier.name)).scan(row_filter=where).to_arrow_batch_reader()):
            pane, key = ledger_pane(earlier, row), tuple(row[name] for name in earlier.key)
            other = latest.get((key, pane.window))
            if other is None or (pane.version, not pane.retraction) > (other.version, not other.retraction):
                latest[key, pane.window] = pane
        for (key, window), pane in sorted(latest.items(), key=lambda one: one[0][1]):
            at = window.timestamp if pane.event_time is None else pane.event_time
            made = pipeline.prepared(record_of(earlier, key, window, pane.answer, at)).records
            if not pane.retraction and any(self._in(one, at) for one in made):
                yield OfAnswer(key, window, pane)

    def _in(self, record: Mapping[str, Any], at: int) -> bool:
        own = tuple(record.get(name) for name in self.pipeline.key)
        return own == self.key and self.window in self.pipeline.windows_of(at, record)

    def _within(self, log: Log, names: Mapping[str, str | None]) -> Filter:
        """Return a filter for the records of a log that may have the answer's key and be in the answer's window."""
        first, last = self.window
        of = self.pipeline.log
        if isinstance(of, Arrivals):
            epochs = [epoch for epoch, at in processing_times(self.lake, log.name).items() if first <= at < last]
            return every(above("_epoch", min(epochs, default=0) - 1), at_most("_epoch", max(epochs, default=-1)))
        # A custom window does not necessarily contain the event times of its own records, so event times are not
        # filtered.
        at = None if isinstance(self.pipeline.where, OwnWindows) else names[log.event_time]
        terms = [since(at, first)] if at is not None and first > BEGINNING else []
        terms += [before(at, last)] if at is not None and last < END_OF_TIME else []
        if not isinstance(of, Union):
            pairs = [(name, value) for name, value in zip(self.pipeline.key, self.key, strict=True) if self._own(name)]
            terms += [equal(own, filter_value(value)) for name, value in pairs if (own := names.get(name)) is not None]
        return every(*terms) if terms else above("_epoch", -1)

    def _own(self, name: str) -> bool:
        """Return True if the column `name` comes unchanged from the log.

        Returns False if a step has computed the column, or if a step is of a kind that may change any column.
        """
        plain_steps = all(isinstance(step, Derive) for step in self.pipeline.each)
        return plain_steps and not any(isinstance(step, Derive) and name in step.values for step in self.pipeline.each)

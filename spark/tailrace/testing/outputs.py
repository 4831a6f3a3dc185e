"""The rows that a definition of any kind gives when the reference execution folds it.

To support a custom kind of definition, register a function with `given_rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

from tailrace.model.base.time import instant, moment
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.step.chain_fold import ChainRun
from tailrace.model.step.computation_state import LateInput
from tailrace.model.windows.panes import Key, Late, answers
from tailrace.model.windows.windows import Window
from tailrace.testing.cells import WINDOW, key_of

Row = Mapping[str, Any]

SIGN = "sign"
"""The column that has `-` for a row that takes back an earlier row, and otherwise `+`."""


class GivenRows(NamedTuple):
    """The rows that a definition gave, in order, and the rows that are left once retractions are applied.

    `columns` maps the columns of `answers` to their types, and `about` names those that say what a row is about. `more`
    has the columns that only `rows` have.
    """

    columns: Mapping[str, str]
    more: Mapping[str, str]
    rows: Sequence[Row]
    answers: Sequence[Row]
    about: tuple[str, ...]


@singledispatch
def given_rows(definition: Definition, run: ChainRun) -> GivenRows:
    """Return the rows that a definition gave in a fold."""
    raise KindError("table of a test", definition)


SPANS = {WINDOW: WINDOW, "window_start": "timestamp", "window_end": "timestamp"}
"""The columns that say a row's window: in one cell, or in two."""


def pane_columns(pipeline: Pipeline) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns of a pipeline's answers, and the columns that only its panes have."""
    key = {name: pipeline.columns[name] for name in pipeline.key}
    columns = {**key, **SPANS, **key, **pipeline.answer_columns}
    more = {SIGN: "string", "timing": "string", "pane_index": "bigint", "epoch": "bigint"}
    more |= {"watermark": "timestamp", "processing_time": "timestamp"}
    return columns, {name: type for name, type in more.items() if name not in columns}


@given_rows.register
def _panes(pipeline: Pipeline, run: ChainRun) -> GivenRows:
    columns, more = pane_columns(pipeline)

    def row(key: Key, window: Window, values: Row) -> dict[str, Any]:
        times = {"window_start": moment(window.start), "window_end": moment(window.end)}
        return {WINDOW: window, **times, **dict(zip(pipeline.key, key, strict=True)), **values}

    rows = []
    for pane in run.panes:
        said = {
            SIGN: "-" if pane.retraction else "+",
            "timing": pane.timing.value,
            "pane_index": pane.version.index,
            "epoch": pane.version.epoch,
            "watermark": moment(pane.watermark),
            "processing_time": moment(pane.processing_time),
        }
        rows.append({**said, **row(pane.key, pane.window, pane.values)})
    current = [row(key, window, values) for (key, window), values in answers(run.panes).items()]
    return GivenRows(columns, more, rows, current, (*pipeline.key, *SPANS))


@given_rows.register
def _productions(computation: Computation, run: ChainRun) -> GivenRows:
    rows = [
        {
            "epoch": one.epoch,
            PANE_TIME: moment(one.at),
            **dict(zip(computation.key, one.key, strict=True)),
            **one.values,
        }
        for one in run.productions
    ]
    return GivenRows(dict(computation.produced.columns), {"epoch": "bigint"}, rows, rows, computation.key)


@given_rows.register
def _mapped(definition: Map, run: ChainRun) -> GivenRows:
    rows = [{"epoch": one.epoch, PANE_TIME: moment(one.at), **one.values} for one in run.mapped]
    return GivenRows({PANE_TIME: "timestamp", **definition.results}, {"epoch": "bigint"}, rows, rows, (PANE_TIME,))


@given_rows.register
def _joined(join: Join, run: ChainRun) -> GivenRows:
    signs = {False: "+", True: "-"}
    rows: list[Row] = [
        {"epoch": one.epoch, SIGN: signs[one.retraction], PANE_TIME: moment(one.at), **one.values} for one in run.joined
    ]
    columns = {PANE_TIME: "timestamp", **join.results}
    return GivenRows(columns, {SIGN: "string", "epoch": "bigint"}, rows, list(_left(rows, columns)), (PANE_TIME,))


def _left(rows: Sequence[Row], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows that no later row takes back."""
    taken = Counter(key_of([row[name] for name in columns]) for row in rows if row[SIGN] == "-")
    for row in rows:
        own = key_of([row[name] for name in columns])
        if row[SIGN] == "+" and taken[own]:
            taken[own] -= 1
        elif row[SIGN] == "+":
            yield row


LATE = {"definition": "string", "event_time": "timestamp", WINDOW: WINDOW, "reason": "string", "epoch": "bigint"}
"""The columns of late records, beside the columns of the record."""


def late_rows(definition: Definition, run: ChainRun) -> Iterator[Row]:
    """Yield the records that came too late for a definition."""
    for one in run.late:
        at = moment(instant(one.record[definition.log.event_time]))
        told: Row = {"reason": "late"} if isinstance(one, LateInput) else _told(one)
        yield {**one.record, "definition": definition.name, "event_time": at, "epoch": one.epoch, **told}
    for kept in run.late_for_join:
        values = {**kept.record.values, "definition": definition.name, "event_time": moment(kept.record.at)}
        yield {**values, WINDOW: kept.record.window, "reason": "late", "epoch": kept.epoch}


def _told(late: Late) -> Row:
    return {WINDOW: late.window, "reason": late.reason}

"""Fold epochs of records into a definition by the reference execution: plain Python without tables.

The reference execution defines what a definition means; the engines of streams and backfills are tested to give the
same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals
from tailrace.model.step.chain_fold import Input, fold_chain
from tailrace.testing.cells import WINDOW
from tailrace.testing.epochs import Cut, Epochs, cut_epochs
from tailrace.testing.given_records import RejectedError, shown
from tailrace.testing.outputs import LATE, SIGN, GivenRows, given_rows, late_rows
from tailrace.testing.rows import Rows

REJECTED = {"by": "string", "epoch": "bigint", "reason": "string", "record": "string"}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Output(Rows):
    """The rows that a definition gives for the epochs of a test: a pipeline's panes, or the rows of another kind.

    `answers` has the rows that are left once retractions are applied; of a pipeline, these are the current answers, one
    for each key and window. `late` has the records that came too late, and `rejected` has the rejected records, also
    those of the definitions that the definition reads. `duplicates` is the number of repeated records that were
    dropped.
    """

    answers: Rows
    late: Rows
    rejected: Rows
    duplicates: int


def fold(definition: Definition, epochs: Epochs, *, ends: bool = True, allow_rejected: bool = False) -> Output:
    """Fold epochs of records into a definition, as a stream would, and return the rows that it gives.

    A record is a dict as its source writes it. An epoch is the list of the records that arrive together, or a single
    record, or an `Epoch`, which can also say the time and the signals. If the definition reads several logs, an epoch
    maps the names of logs to lists. The watermark follows the log's own strategy. With `ends`, a last epoch moves it to
    the end of time, so that no window is left open. A rejected record is an error, unless `allow_rejected` is true.

    The reference execution does the fold: plain Python, which defines what a definition means and with which the
    engines of streams and backfills are tested to agree. A step that only Spark can run is refused.

    >>> from tailrace import Count, Fixed, Log, Pipeline, hours
    >>> rides = Log(name="rides", columns={"at": "timestamp", "city": "string"}, event_time="at")
    >>> hourly = Pipeline(name="hourly", log=rides, key="city", what={"rides": Count()}, where=Fixed(hours(1)))
    >>> print(fold(hourly, [{"at": "2026-03-01T09:10", "city": "Paris"}]))
    city   window                  rides  timing   epoch
    Paris  2026-03-01T09:00/10:00  1      on_time  1
    """
    return folded(definition, cut_epochs(definition, epochs, ends=ends, allow_rejected=allow_rejected), allow_rejected)


def folded(definition: Definition, cut: Cut, allow_rejected: bool = False) -> Output:
    """Fold epochs that have their clocks already."""
    whole = chain(definition)
    epochs: list[Mapping[str, Input]] = cut.epochs
    if epochs and any(isinstance(one.log, Arrivals) for one in whole):
        # Event times are arrival times here, so that only the processing time ends the windows.
        epochs = [*epochs[:-1], {name: _ended(given) for name, given in epochs[-1].items()}]
    runs = fold_chain(definition, epochs)
    given = given_rows(definition, runs[-1])
    rejected = [
        {"by": one.log, "epoch": one.epoch, "reason": one.reason, "record": shown(one.record)} for one in cut.rejected
    ]
    rejected += [
        {"by": one.name, "epoch": bad.epoch, "reason": bad.reason, "record": shown(bad.record)}
        for one, run in zip(whole, runs, strict=True)
        for bad in run.rejected
    ]
    if rejected and not allow_rejected:
        raise RejectedError([f"epoch {one['epoch']}: {one['record']}: {one['reason']}" for one in rejected])
    late = [row for one, run in zip(whole, runs, strict=True) for row in late_rows(one, run)]
    rows = all_rows(given, f"what {definition.name} gives")
    return Output(
        **{one.name: getattr(rows, one.name) for one in fields(Rows)},
        answers=answer_rows(given, definition.name),
        late=late_records(definition, late),
        rejected=Rows(REJECTED, tuple(rejected), f"what {definition.name} rejects", tuple(REJECTED)),
        duplicates=cut.duplicates.total(),
    )


def all_rows(given: GivenRows, what: str) -> Rows:
    """Return all rows that a definition gave, with retractions."""
    more = [name for name in ("timing", SIGN, "epoch") if name in given.more]
    if not any(row.get(SIGN) == "-" for row in given.rows):
        more = [name for name in more if name != SIGN]
    types, shown = {**given.columns, **given.more}, (*_named(given.columns), *more)
    return Rows(types, tuple(given.rows), what, shown, (*given.about, "epoch", SIGN))


def answer_rows(given: GivenRows, name: str) -> Rows:
    """Return the rows that stand."""
    return Rows(given.columns, tuple(given.answers), f"the answers of {name}", _named(given.columns), given.about)


def late_records(
    definition: Definition, late: Sequence[Mapping[str, Any]], only: Collection[str] | None = None
) -> Rows:
    """Return late records, with the columns of all logs of a chain, or with `only` some of these columns."""
    types: dict[str, str] = dict(LATE)
    for one in chain(definition):
        types = {**{name: type for name, type in one.log.columns.items() if only is None or name in only}, **types}
    return Rows(types, tuple(late), f"what is late for {definition.name}", tuple(_used(types, late)))


def _named(columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns to print: a window is in one column."""
    return tuple(name for name in columns if name not in ("window_start", "window_end") or WINDOW not in columns)


def _ended(given: Input) -> Input:
    """Move the processing time of a log's last epoch to the end of time, if its watermark is there."""
    records, clock = given
    return records, replace(clock, processing_time=clock.watermark) if clock.watermark == END_OF_TIME else clock


def _used(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns in which a row has a value."""
    return [name for name in types if any(row.get(name) is not None for row in rows)] or list(LATE)

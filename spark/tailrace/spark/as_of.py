"""What a stage knew as of one of its epochs: its clock, its open windows, and the answers it had given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import PANE
from tailrace.lake.pins import pinned
from tailrace.model.clock import Clock
from tailrace.model.pipeline import Pipeline
from tailrace.spark.recording import Recording, check_new
from tailrace.spark.showing import shown
from tailrace.sql.algebra import quoted
from tailrace.sql.answers import latest
from tailrace.sql.windows import names

OPEN = "__open"
"""What the name of the table of open windows ends with, where they are kept."""


@dataclass(frozen=True)
class AsOf:
    """How a stage stood after the epoch of `clock`; `latest` is the last one that there is.

    `windows` and `answers` are how many open windows and answers there were, of one key where that was asked for, and
    `first_windows` and `first_answers` some of them as rows. `tables` holds them all, where they were kept.
    """

    clock: Clock
    latest: int
    windows: int
    answers: int
    first_windows: tuple[Mapping[str, Any], ...]
    first_answers: tuple[Mapping[str, Any], ...]
    tables: tuple[str, ...] = ()


def as_of(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    epoch: int,
    *,
    rows: int = 10,
    key: Sequence[Any] | None = None,
    keep: str | None = None,
) -> AsOf:
    """The state of one stage as of an epoch, with at most `rows` open windows and answers, of one key or of all.

    The windows that end first come first, and the answers that are the latest. A backfill counts from the epoch that it
    pinned. `keep` names a table for all the answers; that of the open windows has `OPEN` behind the name. Raises
    `ReplayError` where the epoch is not there, its clock is not known any more, or a table of the name is there.
    """
    recording = Recording(spark, lake, pipeline)
    recording.check([epoch], fold=False)
    if keep is not None:
        check_new(lake, keep, f"{keep}{OPEN}")
    with pinned(lake, recording.snapshots):
        return _read(recording, epoch, rows, key, keep)


def _read(recording: Recording, epoch: int, rows: int, key: Sequence[Any] | None, keep: str | None) -> AsOf:
    pipeline = recording.pipeline
    windows, answers = _windows(recording, epoch), _answers(recording, epoch)
    tables = []
    if keep is not None:
        for table, frame in ((keep, answers), (f"{keep}{OPEN}", windows)):
            frame.writeTo(recording.lake.spark_name(table)).using("iceberg").create()
            tables.append(table)
    if key is not None:
        for name, value in zip(pipeline.key, key, strict=True):
            windows, answers = (one.where(F.col(quoted(name)).eqNullSafe(F.lit(value))) for one in (windows, answers))
    by = names(pipeline)
    soonest = windows.orderBy("window_end", "window_start", *by).limit(rows)
    newest = answers.orderBy(F.desc("window_end"), F.desc("window_start"), *by).limit(rows)
    return AsOf(
        recording.clock(epoch),
        recording.last,
        windows.count(),
        answers.count(),
        tuple(shown(soonest)),
        tuple(shown(newest)),
        tuple(tables),
    )


def _windows(recording: Recording, epoch: int) -> DataFrame:
    """The open windows, with the state of each."""
    frame = recording.after(epoch).windows
    instants = {"window_start", "window_end", "waiting_since"}
    items = [
        f"TIMESTAMP_MICROS({quoted(name)}) AS {name}" if name in instants else quoted(name) for name in frame.columns
    ]
    return frame.selectExpr(*items)


def _answers(recording: Recording, epoch: int) -> DataFrame:
    """What table `p` has as of the epoch: of each window the last pane's answer, unless it takes that back."""
    pipeline = recording.pipeline
    panes = f"(SELECT * FROM {recording.ledger} WHERE kind = '{PANE}' AND epoch <= {epoch}L)"
    return recording.spark.sql(f"SELECT * EXCEPT (retraction) FROM ({latest(pipeline, panes)}) WHERE NOT retraction")

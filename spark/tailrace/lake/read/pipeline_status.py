"""The status of a pipeline, read from its tables without a JVM: watermark, epochs, open windows, counts, runs.

Counts come from the tables' manifests wherever those have them, so that asking stays cheap as tables grow. Instants are
microseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import TimestamptzType

from tailrace.lake.catalog.lake import Head, Lake, head_of, properties_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import MAINTAINED
from tailrace.lake.commit.epoch_properties import DUPLICATES, ENGINE, FOLDER, NEAR, progress_in
from tailrace.lake.commit.readers import STAMP
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import equal, there
from tailrace.lake.schema.table_names import LEDGER, ledger_name, rejected_name, runs_name
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.chain import Ranged
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Progress
from tailrace.model.step.transition import Transition


@dataclass(frozen=True)
class LogStatus:
    """A log: its last epoch (-1 before the first), its records, those rejected, and the latest event time in it.

    `latest` is None for a log with no record, and where the event time's column is not known. `committed` is when the
    last commit was made. `progress` is that of the source's partitions, None before the first epoch, and `duplicates`
    the number of records that came again and are not in the log. `unread` has the numbers of files in the landing
    folder that are not read as they are now, by their kinds, as of the last epoch. `near_names` are the columns that
    records lack, by the fields of nearly the same names that they have.
    """

    log: str
    epoch: int
    records: int
    rejected: int
    latest: int | None
    committed: int | None
    progress: Progress | None = None
    duplicates: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    near_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenWindowSpan:
    """The windows that records may still reach: how many, and the ends of the oldest and the newest."""

    count: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True)
class PipelineStatus:
    """A pipeline as its tables have it.

    `epoch` is the last in the ledger and `answers_epoch` the one that the answers stand for; -1 before the first.
    `answers` is None for an earlier stage without a table of answers, and for a map. `rewritten` is the number of
    answers that their last change wrote anew, with the files that held the changed ones; a stream changes the answers
    less often where that is dear (`TAILRACE_FRESHNESS`). `rejected` counts the records that the definition could not
    take, and `reasons` has the most frequent reasons, each with its number of records. `unanswered` counts the answers
    with a result that is null as no value of its type is right, and `unanswered_why` says it of one of them. `panes`
    counts retractions too, and so do the `productions` of a map or a computation. `engine` says what folded the last
    epoch, and why. `same_definition` says whether a definition of this meaning made the ledger; it and `open` are None,
    and `runs` empty, where the definition is not at hand. A map has no `open`.
    """

    pipeline: str
    epoch: int
    answers_epoch: int
    watermark: int
    processing_time: int | None
    generation: int
    token: int
    engine: str | None
    committed: int | None
    answers: int | None
    unanswered: int
    unanswered_why: str | None
    rewritten: int
    panes: int
    late: int
    rejected: int
    reasons: Mapping[str, int]
    productions: int
    open: OpenWindowSpan | None
    same_definition: bool | None
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class DefinitionStatus:
    """The status of a pipeline, None where no stream has made its tables yet, and of its logs that have tables."""

    logs: tuple[LogStatus, ...]
    pipeline: PipelineStatus | None


def status(lake: Lake, pipeline: Ranged) -> DefinitionStatus:
    """Read the status of a pipeline or a map and of its logs. Raises `LakeError` where the catalog cannot be opened."""
    ledger, found = lake.find(ledger_name(pipeline.name)), [(log, lake.find(log.name)) for log in pipeline.sources]
    return DefinitionStatus(
        tuple(_log_status(lake, table, log.name, log) for log, table in found if table is not None),
        None if ledger is None else _pipeline_status(lake, ledger, pipeline.name, pipeline),
    )


def overview(lake: Lake) -> tuple[list[LogStatus], list[PipelineStatus]]:
    """Read the status of every log and pipeline of the namespace, as far as tables tell without a definition."""
    if not lake.exists:
        return [], []
    tables = lake.tables
    logs = [name.removesuffix("__rejected") for name in tables if name.endswith("__rejected")]
    pipelines = [name.removesuffix(LEDGER) for name in tables if name.endswith(LEDGER)]
    return [log_status(lake, name) for name in logs], [pipeline_status(lake, name) for name in pipelines]


def log_status(lake: Lake, name: str, log: Log | None = None) -> LogStatus:
    """Read the status of a log. Raises `LakeError` where there is no such log."""
    return _log_status(lake, lake.table(name), name, log)


def _log_status(lake: Lake, table: Table, name: str, log: Log | None) -> LogStatus:
    rejected, head = lake.find(rejected_name(name)), head_of(table)
    return LogStatus(
        log=name,
        epoch=head.number("epoch"),
        records=_total(table),
        rejected=0 if rejected is None else _total(rejected),
        latest=latest_in(table, log.event_time) if log is not None else None,
        committed=_committed(table),
        progress=progress_in(head),
        duplicates=head.number(DUPLICATES, 0),
        unread=json.loads(head.properties.get(FOLDER, "{}")),
        near_names=json.loads(head.properties.get(NEAR, "{}")),
    )


def pipeline_status(lake: Lake, name: str, pipeline: Ranged | None = None) -> PipelineStatus:
    """Read the status of a pipeline. Raises `LakeError` where it has no ledger."""
    return _pipeline_status(lake, lake.table(ledger_name(name)), name, pipeline)


def _pipeline_status(lake: Lake, ledger: Table, name: str, pipeline: Ranged | None) -> PipelineStatus:
    answers, head, files = lake.find(name), head_of(ledger), _files(ledger)
    counts = _by_kind(ledger, files)
    unanswered, why = (0, None) if answers is None else _unanswered(answers)
    return PipelineStatus(
        pipeline=name,
        epoch=head.number("epoch"),
        answers_epoch=head_of(answers).number("epoch") if answers is not None else -1,
        watermark=head.number("watermark", BEGINNING),
        processing_time=int(head.properties["processing_time"]) if "processing_time" in head.properties else None,
        generation=head.number("generation", 0),
        token=head.number("token", 0),
        engine=head.properties.get(ENGINE),
        committed=_committed(ledger),
        answers=answers.scan().count() if answers is not None else None,
        unanswered=unanswered,
        unanswered_why=why,
        rewritten=_rewritten(answers) if answers is not None else 0,
        panes=counts[PANE],
        late=counts[LATE],
        rejected=counts[REJECTED],
        reasons=_reasons(ledger) if counts[REJECTED] else {},
        productions=counts[PRODUCTION],
        open=_open(ledger, files, head, pipeline) if isinstance(pipeline, Pipeline) else None,
        same_definition=head.properties.get("fingerprint") == pipeline.fingerprint if pipeline is not None else None,
        runs=tuple(Runs(lake, pipeline).all()) if pipeline is not None and lake.has(runs_name(name)) else (),
    )


def _unanswered(answers: Table) -> tuple[int, str | None]:
    """Count the answers that say why a result of theirs is null, and return what one says.

    Only files that have such an answer are read, as their manifests tell.
    """
    if UNANSWERED not in answers.schema().column_names:
        return 0, None
    number, why = 0, None
    for batch in answers.scan(row_filter=there(UNANSWERED), selected_fields=(UNANSWERED,)).to_arrow_batch_reader():
        number += batch.num_rows
        if why is None and batch.num_rows:
            why = batch[UNANSWERED][0].as_py()
    return number, why


def _reasons(ledger: Table) -> dict[str, int]:
    """Count the most frequent reasons for which a definition rejected records."""
    rows = ledger.scan(row_filter=equal("kind", REJECTED), selected_fields=("reason",)).to_arrow_batch_reader()
    counts: Counter[str] = Counter()
    for batch in rows:
        counts.update({row["values"]: row["counts"] for row in batch["reason"].value_counts().to_pylist()})
    return dict(counts.most_common(REASONS))


REASONS = 3
"""The number of reasons that are shown."""


def _files(table: Table) -> list[FileScanTask]:
    """List the files of a table. A stream's table has many manifests: callers list the files only once."""
    return list(table.scan().plan_files())


def _by_kind(ledger: Table, files: Iterable[FileScanTask]) -> Counter[str]:
    """Count the rows of each kind in a ledger by its files, which are of one kind each."""
    counts: Counter[str] = Counter()
    for task in files:
        counts[_kind(ledger, task)] += task.file.record_count
    return counts


def _kind(ledger: Table, task: FileScanTask) -> str:
    fields = [field.name for field in ledger.specs()[task.file.spec_id].fields]
    return str(task.file.partition[fields.index("kind")])


def _open(ledger: Table, files: Iterable[FileScanTask], head: Head, pipeline: Pipeline) -> OpenWindowSpan:
    """Find the open windows by the latest partial of each, less windows that merged away or are out of reach."""
    watermark = head.number("watermark", BEGINNING)
    rules = Transition(pipeline, Scalars())
    keys = [*pipeline.key, "window_start", "window_end"]
    missing = [name for name in keys if name not in ledger.schema().column_names]
    if missing:  # another definition's ledger
        return OpenWindowSpan(0, None, None)
    # Files whose windows all end by this floor are not read; the rule itself is applied to each window below.
    floor = watermark - pipeline.lateness - pipeline.where.reach
    ends = ledger.schema().find_field("window_end").field_id
    partials = [task for task in files if _kind(ledger, task) == PARTIAL]
    reachable = [task for task in partials if (last := _highest(task, ends)) is None or last > floor]
    # Imported here because it imports pandas where that is not kept out.
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ledger.scan(selected_fields=(*keys, "generation", "epoch", "gone"))
    rows = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(reachable)
    latest = latest_by(rows, keys)
    found = [
        instant(end)
        for end, gone in zip(latest["window_end"].to_pylist(), latest["gone"].to_pylist(), strict=True)
        if not gone and not rules.out_of_reach(instant(end), watermark)
    ]
    return OpenWindowSpan(len(found), min(found, default=None), max(found, default=None))


def latest_by(partials: pa.Table, keys: list[str]) -> pa.Table:
    """Select the latest partial of each key and window, by version; of equal versions one not gone is the later."""
    order = [("generation", "ascending"), ("epoch", "ascending"), ("gone", "descending")]
    ordered = partials.sort_by(order)
    numbered = ordered.append_column("place", pa.array(range(len(ordered)), pa.int64()))
    last = numbered.group_by(keys).aggregate([("place", "max")])["place_max"]
    return ordered.take(last)


def _total(table: Table) -> int:
    """Count the records of a table that is only ever appended to."""
    return _counted(table.current_snapshot(), "total-records")


def _rewritten(answers: Table) -> int:
    """Count the rows that the last commit that brought the answers up removed from the table to write them anew."""
    for snapshot in reversed(answers.snapshots()):
        properties = properties_of(snapshot)
        if STAMP in properties and MAINTAINED not in properties:
            return _counted(snapshot, "deleted-records")
    return 0


def _counted(snapshot: Snapshot | None, what: str) -> int:
    """Read a count that a commit's summary has; 0 where it has none."""
    summary: Any = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get(what, 0))


def latest_in(table: Table, column: str) -> int | None:
    """Find the latest instant in a column by the files' statistics, in microseconds; None where they have none."""
    number = table.schema().find_field(column).field_id
    highest = (_highest(task, number) for task in _files(table))
    return max((at for at in highest if at is not None), default=None)


def _highest(task: FileScanTask, number: int) -> int | None:
    """Find the latest instant in a column of a file by its statistics, in microseconds; None where they have none."""
    bound = (task.file.upper_bounds or {}).get(number)
    return None if bound is None else int(from_bytes(TimestamptzType(), bound))


def _committed(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.timestamp_ms * 1000

"""Read the status of a definition and of its logs from their tables, without a JVM.

Row counts are taken from the tables' manifests if possible, so that reading the status stays cheap as tables grow.
Times are in microseconds. Each kind of definition has its own function that reads the state kept between epochs
(`kept_state`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import TimestamptzType

from tailrace.lake.catalog.lake import Head, Lake, head_of, properties_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.stored_meaning import holds
from tailrace.lake.catalog.table_protocol import MAINTAINED, STAMP
from tailrace.lake.commit.epoch_properties import DUPLICATES, FOLDER, NEAR, ROUNDED, began_text, progress_in
from tailrace.lake.commit.runs_table import recorded_runs
from tailrace.lake.digests.commit_digest import summary_of
from tailrace.lake.metadata.null_lists import keep_null_lists
from tailrace.lake.read.stage_progress import StageProgress, committed_at
from tailrace.lake.read.table_sizes import TableSize
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PANE, PARTIAL, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import equal, every, has_value
from tailrace.lake.schema.table_names import LEDGER, ledger_name, rejected_name
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Progress
from tailrace.model.step.transition import Transition


@dataclass(frozen=True)
class LogStatus:
    """The status of a log: its last epoch (-1 before the first epoch), and its counts of records and rejected records.

    `latest` is the latest event time in the log, or None if the log has no records or its event-time column is unknown.
    `committed` is the time of the log's last commit. `progress` is the progress of the source's partitions, or None
    before the first epoch. `duplicates` is the number of records that were dropped because they had arrived before.
    `rounded` is the number of decimals in the log that have fewer digits than in the source (`Log.rounding`).
    `unread` maps each kind of file in the landing folder to a number of files: the files whose current content had not
    been read at the time of the last epoch. `near_names` maps the name of an undeclared field in the records to the
    name of a declared column that is spelled nearly the same and that the records lack. `began` is where the log began
    in its topics, or None if it began with their first messages.
    """

    log: str
    epoch: int
    records: int
    rejected: int
    latest: int | None
    committed: int | None
    progress: Progress | None = None
    duplicates: int = 0
    rounded: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    near_names: Mapping[str, str] = field(default_factory=dict)
    began: str | None = None


@dataclass(frozen=True)
class OpenWindows:
    """The windows that records can still change: their number, and the end times of the oldest and newest window."""

    count: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True)
class KeptKeys:
    """The number of keys of a computation that still have state, and the number of pending timers of these keys.

    `next` is the event time at which the first event-time timer is due, or None if there is no such timer. `in_flight`
    is the number of records that the last epoch sent back into the computation, or None if the computation has no loop.
    `strong` states whether the ledger stores the computation's productions (its output rows).
    """

    count: int
    timers: int
    next: int | None
    in_flight: int | None
    strong: bool


@dataclass(frozen=True)
class Answers:
    """The number of a pipeline's current answers, and details about these answers.

    `unanswered` is the number of answers that have a null result because no correct value fits the result's type.
    `unanswered_why` is the explanation in one of these answers. `rewritten` is the number of answers that the last
    change of the table rewrote. A change also rewrites unchanged answers that are in the same files as changed answers.
    If `rewritten` is high, a stream updates the table of answers less often (`TAILRACE_FRESHNESS`).
    """

    count: int
    unanswered: int
    unanswered_why: str | None
    rewritten: int


@dataclass(frozen=True, kw_only=True)
class Status(StageProgress):
    """A definition's status according to its tables: its progress, the rows of its ledger, and its state.

    `counts` has the number of the ledger's rows of each kind. `panes` is the number of panes, and `productions` is the
    number of rows that a map, a join or a computation has output; both numbers include retractions. `late` is the
    number of records that were too late; a record counts once for each window for which it was too late. `rejected` is
    the number of records that the definition rejected. `claimed` is the number of output rows that were held back
    because another computation had already claimed their ids.

    `reasons` has the most frequent reasons for rejecting records, each with the number of rejected records. `answers`
    is None if there is no table of answers. `kept` has the open windows of a pipeline or the keys of a computation, and
    is None for a definition that keeps no state in its ledger. `same_definition` is True if the definition that wrote
    the ledger computes the same results as this definition. If the definition itself is not available,
    `same_definition` and `kept` are None, and `runs` is empty.
    """

    counts: Mapping[str, int]
    panes: int
    productions: int
    late: int
    rejected: int
    claimed: int
    reasons: Mapping[str, int]
    answers: Answers | None
    kept: OpenWindows | KeptKeys | None
    same_definition: bool | None
    runs: tuple[Run, ...]

    @property
    def windows(self) -> OpenWindows | None:
        """The definition's open windows, or None if the definition has no windows."""
        return self.kept if isinstance(self.kept, OpenWindows) else None

    @property
    def keys(self) -> KeptKeys | None:
        """The keys that have state, or None if the definition keeps no state by key."""
        return self.kept if isinstance(self.kept, KeptKeys) else None

    @property
    def answers_behind(self) -> int:
        """The number of epochs by which the table of answers is behind the ledger."""
        return max(0, self.epoch - self.answers_epoch)


@dataclass(frozen=True)
class DefinitionStatus:
    """The status of a definition, and the status of each of its logs; logs without a table are left out.

    `own` is the definition's own status, or None if no stream has created the definition's tables yet.
    """

    logs: tuple[LogStatus, ...]
    own: Status | None


def status(lake: Lake, definition: Definition) -> DefinitionStatus:
    """Read the status of a definition and of its logs. Raises `LakeError` if the catalog cannot be opened."""
    ledger, found = lake.find(ledger_name(definition.name)), [(log, lake.find(log.name)) for log in definition.sources]
    return DefinitionStatus(
        tuple(_log_status(lake, table, log.name, log) for log, table in found if table is not None),
        None if ledger is None else _status(lake, ledger, definition.name, definition),
    )


def overview(lake: Lake) -> tuple[list[LogStatus], list[Status]]:
    """Read the status of every log and ledger in the namespace.

    Values that can be read only with a definition are left out.
    """
    if not lake.exists:
        return [], []
    tables = lake.tables
    logs = [name.removesuffix("__rejected") for name in tables if name.endswith("__rejected")]
    names = [name.removesuffix(LEDGER) for name in tables if name.endswith(LEDGER)]
    ledgers = [_status(lake, lake.table(ledger_name(name)), name) for name in names]
    return [log_status(lake, name) for name in logs], ledgers


def log_status(lake: Lake, name: str, log: Log | None = None) -> LogStatus:
    """Read the status of a log. Raises `LakeError` if the log does not exist."""
    return _log_status(lake, lake.table(name), name, log)


def _log_status(lake: Lake, table: Table, name: str, log: Log | None) -> LogStatus:
    rejected, head = lake.find(rejected_name(name)), head_of(table)
    return LogStatus(
        log=name,
        epoch=head.number("epoch"),
        records=TableSize.of(table).rows,
        rejected=0 if rejected is None else TableSize.of(rejected).rows,
        latest=latest_in(table, log.event_time) if log is not None else None,
        committed=committed_at(table),
        progress=progress_in(head),
        duplicates=head.number(DUPLICATES, 0),
        rounded=head.number(ROUNDED, 0),
        unread=json.loads(head.properties.get(FOLDER, "{}")),
        near_names=json.loads(head.properties.get(NEAR, "{}")),
        began=began_text(head),
    )


def _status(lake: Lake, table: Table, name: str, definition: Definition | None = None) -> Status:
    ledger, found = Ledger(table), lake.find(name)
    answers = None if found is None else Answers(found.scan().count(), *_unanswered(found), _rewritten(found))
    kept, same, runs = None, None, tuple[Run, ...]()
    if definition is not None:
        kept, same = kept_state(definition, ledger), holds(lake, definition)
        runs = tuple(recorded_runs(lake, name))
    numbers: dict[str, Any] = {of: ledger.counts[kind] for of, kind in _NUMBERS.items()}
    return Status(
        **vars(StageProgress.of(name, table, found)),
        **numbers,
        counts=ledger.counts,
        reasons=_reasons(table) if ledger.counts[REJECTED] else {},
        answers=answers,
        kept=kept,
        same_definition=same,
        runs=runs,
    )


_NUMBERS = {"panes": PANE, "productions": PRODUCTION, "late": LATE, "rejected": REJECTED, "claimed": CLAIMED}
"""A mapping from the attributes of a `Status` with a number of rows to the kinds of these rows."""


@dataclass(frozen=True)
class Ledger:
    """A ledger and its files. The files are listed only once, because a stream's table has many manifests."""

    table: Table

    @cached_property
    def head(self) -> Head:
        return head_of(self.table)

    @cached_property
    def files(self) -> list[FileScanTask]:
        return list(self.table.scan().plan_files())

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of rows of each kind, from the files' metadata; each file has rows of only one kind."""
        counts: Counter[str] = Counter()
        for task in self.files:
            counts[self.kind(task)] += task.file.record_count
        return counts

    def kind(self, task: FileScanTask) -> str:
        """Return the kind of the rows in a file of the ledger."""
        fields = [field.name for field in self.table.specs()[task.file.spec_id].fields]
        return str(task.file.partition[fields.index("kind")])


@singledispatch
def kept_state(definition: Definition, ledger: Ledger) -> OpenWindows | KeptKeys | None:
    """Read the state that a definition keeps in its ledger between epochs.

    Returns None for the kinds of definitions that keep no state in the ledger.
    """
    raise KindError("status", definition)


kept_state.register(Map, lambda definition, ledger: None)
kept_state.register(Join, lambda definition, ledger: None)


def _unanswered(answers: Table) -> tuple[int, str | None]:
    """Count the answers that have an explanation for a null result; return the number and one explanation.

    A file is not read if the manifests show that no answer in the file has an explanation.
    """
    if UNANSWERED not in answers.schema().column_names:
        return 0, None
    number, why = 0, None
    for batch in answers.scan(row_filter=has_value(UNANSWERED), selected_fields=(UNANSWERED,)).to_arrow_batch_reader():
        number += batch.num_rows
        if why is None and batch.num_rows:
            why = batch[UNANSWERED][0].as_py()
    return number, why


def _reasons(ledger: Table) -> dict[str, int]:
    """Return the most frequent reasons why a definition rejected records, each with the number of rejected records."""
    rows = ledger.scan(row_filter=equal("kind", REJECTED), selected_fields=("reason",)).to_arrow_batch_reader()
    counts: Counter[str] = Counter()
    for batch in rows:
        counts.update({row["values"]: row["counts"] for row in batch["reason"].value_counts().to_pylist()})
    return dict(counts.most_common(REASONS))


REASONS = 3
"""The maximum number of different reasons that are returned for rejected records."""


@kept_state.register
def _open_windows(pipeline: Pipeline, ledger: Ledger) -> OpenWindows:
    """Find a pipeline's open windows from the latest partial (stored state) of each window.

    Windows that were merged into another window, and windows that new records cannot change any more, are left out.
    """
    watermark = ledger.head.number("watermark", BEGINNING)
    rules = Transition(pipeline, Scalars())
    keys, schema = [*pipeline.key, "window_start", "window_end"], ledger.table.schema()
    if any(name not in schema.column_names for name in keys):  # another definition's ledger
        return OpenWindows(0, None, None)
    # A file is skipped if all windows in the file end at or before the instant `floor`. The windows in all other files
    # are checked individually below.
    floor = watermark - pipeline.lateness - pipeline.where.reach
    ends = schema.find_field("window_end").field_id
    partials = [task for task in ledger.files if ledger.kind(task) == PARTIAL]
    reachable = [task for task in partials if (last := _highest(task, ends)) is None or last > floor]
    # This module is imported inside the function, because importing `pyiceberg.io.pyarrow` also imports pandas, unless
    # the import of pandas is suppressed.
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ledger.table.scan(selected_fields=(*keys, "generation", "epoch", "gone"))
    keep_null_lists()
    rows = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(reachable)
    latest = latest_by(rows, keys)
    found = [
        instant(end)
        for end, gone in zip(latest["window_end"].to_pylist(), latest["gone"].to_pylist(), strict=True)
        if not gone and not rules.out_of_reach(instant(end), watermark)
    ]
    return OpenWindows(len(found), min(found, default=None), max(found, default=None))


@kept_state.register
def _kept_keys(computation: Computation, ledger: Ledger) -> KeptKeys:
    """Find the keys of a computation that still have state, and the pending timers of these keys.

    The keys and timers are taken from the latest partial (stored state) of each key.
    """
    table, epoch = ledger.table, ledger.head.number("epoch")
    keys = [one for one in computation.key if one in table.schema().column_names]
    names = (*keys, "epoch", "gone", "timers")
    rows = table.scan(row_filter=equal("kind", PARTIAL), selected_fields=names).to_arrow()
    pending = [row["timers"] for row in latest_by(rows, keys).to_pylist() if not row["gone"]]
    due = [instant(timer["at"]) for timers in pending for timer in timers if timer["domain"] == "event"]
    fed_back = every(equal("kind", FEEDBACK), equal("epoch", epoch))
    in_flight = table.scan(row_filter=fed_back).count() if computation.loops else None
    timers, strong = sum(map(len, pending)), computation.productions == "strong"
    return KeptKeys(len(pending), timers, min(due, default=None), in_flight, strong)


def latest_by(partials: pa.Table, keys: list[str]) -> pa.Table:
    """Select the partial (stored state) with the latest version for each combination of values in the columns `keys`.

    If two partials have the same version, the partial that is not marked as `gone` counts as the later partial.
    """
    order = {"generation": "ascending", "epoch": "ascending", "gone": "descending"}
    # The partials of a computation have no column `generation`, so they are sorted only by the columns that they have.
    ordered = partials.sort_by([one for one in order.items() if one[0] in partials.column_names])
    numbered = ordered.append_column("place", pa.array(range(len(ordered)), pa.int64()))
    last = numbered.group_by(keys).aggregate([("place", "max")])["place_max"]
    return ordered.take(last)


def _rewritten(answers: Table) -> int:
    """Return the number of answers that the last update rewrote, including answers that the update did not change."""
    for snapshot in reversed(answers.snapshots()):
        properties = properties_of(snapshot)
        if STAMP in properties and MAINTAINED not in properties:
            return int(summary_of(snapshot).get("deleted-records", 0))
    return 0


def latest_in(table: Table, column: str) -> int | None:
    """Return the latest time in a column of a table, in microseconds, from the files' statistics.

    Returns None if no file has statistics for the column.
    """
    number = table.schema().find_field(column).field_id
    highest = (_highest(task, number) for task in table.scan().plan_files())
    return max((at for at in highest if at is not None), default=None)


def _highest(task: FileScanTask, number: int) -> int | None:
    """Return the latest time in a column of one file, in microseconds, from the file's statistics.

    Returns None if the file has no statistics for the column.
    """
    bound = (task.file.upper_bounds or {}).get(number)
    return None if bound is None else int(from_bytes(TimestamptzType(), bound))

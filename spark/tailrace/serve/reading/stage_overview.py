"""The state of each stage: watermark, partitions that hold the watermark back, epochs, windows, late records, and
runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.table import Table

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.corrections.stages_behind import StageBehind, stages_behind
from tailrace.lake.read.late_records import LateReport
from tailrace.lake.read.late_report import late_report
from tailrace.lake.read.status import LogStatus, Status, status
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.lake_errors import OtherDefinitionError
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.serve.reading.lake_reader import Session
from tailrace.serve.reading.shown_text import count_text

NAMED = 3
"""The maximum number of partitions that the overview names for each stage as the cause of a low watermark."""

LAST = 3
"""The maximum number of runs that the overview shows for each stage."""


@dataclass(frozen=True)
class StageState:
    """The state of a stage for the overview: the status of the stage and of its logs, and the missing corrections.

    `own` is None if no stream has created the stage's tables yet. `late_left` counts the late records that no backfill
    has included in an answer; `late_left` is None if the stage has no report on late records. `lacks` lists the
    corrections of the stage's inputs that the stage has not applied yet.
    """

    name: str
    kind: str
    own: Status | None = None
    logs: tuple[LogStatus, ...] = ()
    late_left: int | None = None
    lacks: tuple[StageBehind, ...] = ()

    @property
    def held_by(self) -> str:
        """The names of the partitions or logs with the lowest watermark, which hold the stage's watermark back."""
        return held_by(self.logs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The last runs of the stage, latest first. Runs of streams are left out."""
        own = () if self.own is None else self.own.runs
        return tuple(run for run in own if run.kind != "stream")[-LAST:][::-1]


def tables_digest(lake: Lake, stages: Sequence[Definition]) -> str:
    """Return a digest that changes whenever a table of the stages or a table of their logs changes."""
    names = [name for stage in stages for name in (stage.name, ledger_name(stage.name), runs_name(stage.name))]
    names += [log.name for stage in stages for log in stage.sources]
    found = [(name, table.metadata_location) for name in dict.fromkeys(names) if (table := lake.find(name)) is not None]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


class LastStates:
    """A cache of the last state that was read for each stage; pages that refresh at the same time share one read."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, StageState]] = {}

    def of(self, session: Session, stage: Definition) -> StageState:
        """Return a stage's state; read the state again if the stage's tables have changed since the last read."""
        mark = tables_digest(session.lake, chain(stage))
        held = self._found.get(stage.name)
        if held is None or held[0] != mark:
            held = self._found[stage.name] = (mark, stage_state(session, stage))
        return held[1]


def stage_state(session: Session, stage: Definition) -> StageState:
    """Read the current state of a stage."""
    found = status(session.lake, stage)
    if found.own is None:
        return StageState(stage.name, stage.kind_name, logs=found.logs)
    report = late_state(session, stage)
    left = None if report is None else report.records - report.repaired
    lacks = tuple(one for one in stages_behind(session.lake, stage) if one.stage.name == stage.name)
    return StageState(stage.name, stage.kind_name, found.own, found.logs, left, lacks)


def held_by(logs: Sequence[LogStatus]) -> str:
    """Return the names of the partitions that hold the watermark back, as one text.

    A log that has only one partition appears under the log's name. If the stage reads only one log, and this log has
    only one partition, the text is empty.
    """
    there = [log for log in logs if log.progress is not None and not log.progress.all_idle]
    least = min((log.progress.watermark for log in there if log.progress is not None), default=None)
    names: list[str] = []
    for log in there:
        progress = log.progress
        if progress is None or progress.watermark != least:
            continue
        several = len(progress.partitions) > 1
        names += [f"{log.log}: {one}" for one in progress.behind] if several else [log.log] * (len(logs) > 1)
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {count_text(more, 'more', 'more')}" if more > 0 else "")


def late_state(session: Session, stage: Definition) -> LateReport | None:
    """Report on a stage's late records.

    Returns None if late records are not repaired for this kind of stage. Also returns None if the stage's tables do not
    exist or belong to another definition.
    """
    lake = session.lake
    if not stage.repairs_late or not lake.has(ledger_name(stage.name)):
        return None
    try:
        check_meaning(lake, stage)
    except OtherDefinitionError:
        return None
    return late_report(lake, stage, partial(_late_groups, session))


def _late_groups(session: Session, ledger: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Use DuckDB to group the late records of a ledger. The groups are the same as in
    `late_records.group_late_rows`.
    """
    items = [f"epoch_us({one}) AS {one}" if one in SPAN else name_of(one) for one in names]
    with session.relation(ledger, equal("kind", LATE), ("kind", *names, "behind")) as rows:
        counts = "count(*) AS count_all, max(behind) AS behind_max"
        return session.all(f"SELECT {', '.join(items)}, {counts} FROM {rows} WHERE kind = '{LATE}' GROUP BY ALL")


def runs_of(lake: Lake, stage: Definition) -> list[Run]:
    """List a stage's runs in the order of their generations. The list is empty if the stage has no table of runs."""
    return Runs(lake, stage).all() if lake.has(runs_name(stage.name)) else []

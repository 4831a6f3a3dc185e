"""How each stage of the definitions stands: watermark and what holds it back, epochs, windows, late records, runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyiceberg.table import Table

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.corrections.stages_behind import StageBehind, stages_behind
from tailrace.lake.read.computation_status import ComputationStatus, computation_status
from tailrace.lake.read.late_join_records import late_join_report
from tailrace.lake.read.late_records import LateReport, late_report
from tailrace.lake.read.pipeline_status import LogStatus, OpenWindowSpan, PipelineStatus, status
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.lake_errors import OtherDefinitionError
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.clock import ahead
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import Definition, Windowless, chain
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.pipeline import Pipeline
from tailrace.observe.serving.reading.lake_reader import Session
from tailrace.observe.serving.reading.shown_text import counted

NAMED = 3
"""The maximum number of partitions that are named as holding a watermark back."""

LAST = 3
"""The maximum number of runs that the overview shows of a stage."""


@dataclass(frozen=True)
class StageState:
    """How a stage stands; `epoch` is None where no stream has made its tables yet, and other fields where it has none.

    `same` is false where another definition made the tables. `lag` is how far the watermark is behind processing time,
    in microseconds. `lacks` says which corrections of what the stage reads are not in it. `unanswered` counts the
    answers with a result that is null as no value of its type is right; `unanswered_why` says it of one of them.
    """

    name: str
    kind: str
    epoch: int | None = None
    watermark: int = BEGINNING
    processing_time: int | None = None
    committed: int | None = None
    held_by: str = ""
    engine: str = ""
    engine_why: str = ""
    open: OpenWindowSpan | None = None
    answers: int | None = None
    unanswered: int = 0
    unanswered_why: str = ""
    behind: int | None = None
    made: int | None = None
    late: int | None = None
    late_left: int | None = None
    rejected: int = 0
    reasons: tuple[str, ...] = ()
    generation: int | None = None
    same: bool = True
    runs: tuple[Run, ...] = ()
    lacks: tuple[StageBehind, ...] = ()
    logs: tuple[LogStatus, ...] = field(default=())

    @property
    def lag(self) -> int | None:
        """How far the watermark is behind the last epoch's processing time; None where either is at an end of time."""
        if self.processing_time is None or not BEGINNING < self.watermark < END_OF_TIME:
            return None
        return max(0, self.processing_time - self.watermark)

    @property
    def ahead(self) -> int:
        """How far the watermark is ahead of the last epoch's processing time, in microseconds; 0 up to a day."""
        return ahead(self.watermark, self.processing_time)


def standing(lake: Lake, stages: Sequence[Definition]) -> str:
    """Return a text that changes as soon as a table of the stages or of their logs does."""
    names = [name for stage in stages for name in (stage.name, ledger_name(stage.name), runs_name(stage.name))]
    names += [log.name for stage in stages for log in stage.sources]
    found = [(name, table.metadata_location) for name in dict.fromkeys(names) if (table := lake.find(name)) is not None]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


class LastStates:
    """How each stage stood when it was last asked for, so that pages that are refreshed together read it once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, StageState]] = {}

    def of(self, session: Session, stage: Definition) -> StageState:
        """Read how a stage stands, where its tables have moved since."""
        mark = standing(session.lake, chain(stage))
        held = self._found.get(stage.name)
        if held is None or held[0] != mark:
            held = self._found[stage.name] = (mark, stage_state(session, stage))
        return held[1]


def kind_of(stage: Definition) -> str:
    """Return what a stage is, in a word."""
    return "computation" if isinstance(stage, Computation) else type(stage).__name__.lower()


def stage_state(session: Session, stage: Definition) -> StageState:
    """Read how a stage stands."""
    lake = session.lake
    if isinstance(stage, Computation):
        return _computation(lake, stage)
    found = status(lake, stage)
    own = found.pipeline
    if own is None:
        return StageState(stage.name, kind_of(stage), logs=found.logs)
    report = late_state(session, stage)
    return replace(
        _common(stage, own, found.logs),
        committed=own.committed,
        open=own.open,
        answers=own.answers,
        unanswered=own.unanswered,
        unanswered_why=own.unanswered_why or "",
        behind=None if own.answers is None else max(0, own.epoch - own.answers_epoch),
        made=own.productions if isinstance(stage, Windowless) else own.panes,
        late_left=None if report is None else report.records - report.repaired,
        generation=own.generation,
        runs=tuple(run for run in own.runs if run.kind != "stream")[-LAST:][::-1],
        lacks=_lacks(lake, stage),
    )


def _computation(lake: Lake, stage: Computation) -> StageState:
    own = computation_status(lake, stage)
    if own is None:
        return StageState(stage.name, kind_of(stage))
    return replace(_common(stage, own, own.logs), made=own.productions, lacks=_lacks(lake, stage))


def _lacks(lake: Lake, stage: Definition) -> tuple[StageBehind, ...]:
    return tuple(one for one in stages_behind(lake, stage) if one.stage.name == stage.name)


def _common(stage: Definition, own: PipelineStatus | ComputationStatus, logs: Sequence[LogStatus]) -> StageState:
    """Tell what the status of any definition has."""
    engine, _, why = (own.engine or "").partition(": ")
    return StageState(
        name=stage.name,
        kind=kind_of(stage),
        epoch=own.epoch,
        watermark=own.watermark,
        processing_time=own.processing_time,
        held_by=held_by(logs),
        engine=engine,
        engine_why=why,
        late=own.late,
        rejected=own.rejected,
        reasons=tuple(own.reasons) if isinstance(own, PipelineStatus) else (),
        same=bool(own.same_definition),
        logs=tuple(logs),
    )


def held_by(logs: Sequence[LogStatus]) -> str:
    """Name what holds the watermark back: the partitions that lag most, or the log where it has a single one."""
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
    return ", ".join(names[:NAMED]) + (f" and {counted(more, 'more', 'more')}" if more > 0 else "")


def late_state(session: Session, stage: Definition) -> LateReport | None:
    """Report the late records of a pipeline or a join; None of anything else, or without tables of this definition."""
    lake = session.lake
    if not isinstance(stage, Pipeline | Join) or not lake.has(ledger_name(stage.name)):
        return None
    try:
        check_meaning(lake, stage)
    except OtherDefinitionError:
        return None
    if isinstance(stage, Join):
        return late_join_report(lake, stage)
    return late_report(lake, stage, partial(_late_groups, session))


def _late_groups(session: Session, ledger: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Group a ledger's late records in the engine (`late_records.late_groups`)."""
    items = [f"epoch_us({one}) AS {one}" if one in SPAN else name_of(one) for one in names]
    with session.relation(ledger, equal("kind", LATE), ("kind", *names, "behind")) as rows:
        counts = "count(*) AS count_all, max(behind) AS behind_max"
        return session.all(f"SELECT {', '.join(items)}, {counts} FROM {rows} WHERE kind = '{LATE}' GROUP BY ALL")


def runs_of(lake: Lake, stage: Definition) -> list[Run]:
    """List a stage's runs in the order of generations; none of a computation, which has none."""
    if isinstance(stage, Computation) or not lake.has(runs_name(stage.name)):
        return []
    return Runs(lake, stage).all()

"""A scratch lake for a test, and a stream that folds epochs into it in this process, without a JVM.

The stream lands records in the logs, and folds them into ledgers and answers, as a real stream does: with the same
leases, commits and engine (DuckDB). Only Spark's part is left out: the records come from the test, not from a source,
and a step that only Spark can run is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import pyarrow as pa
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from tailrace.backfill.backfill import backfill_stages
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.streamed_definitions import landed_logs
from tailrace.ingest.plain_columns import own_columns, schema_of
from tailrace.ingest.row_landing import RowLanding
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import DUPLICATES, IDLE, PROGRESS, READ, clock_properties
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.definition.record_steps import NeedsSparkError
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tailrace.testing.clocks import ProcessingTime
from tailrace.testing.epochs import Epoch, EpochCutter, EpochsError, Instant, RejectedRecord, micros_of
from tailrace.testing.folds import all_rows, answer_rows, late_records
from tailrace.testing.given_records import Record, shown
from tailrace.testing.ledger_rows import late_in, ledger_rows
from tailrace.testing.rows import Rows
from tailrace.toolchain.extras import explain_import
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay


class LakeDoubtError(TailraceError, AssertionError):
    """The failure of a test: the tables of its lake do not add up, or a replay has other rows."""


class ScratchSettings(Settings):
    """Settings of a lake of a test alone: neither the environment nor `tailrace.toml` leads anywhere else."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *others: Any, **more: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@dataclass(frozen=True)
class BackfillCounts:
    """What a backfill did to the windows or rows of a definition."""

    changed: int
    untouched: int
    retracted: int


def _no_spark() -> NoReturn:
    raise NeedsSparkError("this needs Spark, and a test's stream has none: use Derive or Each to run without Spark")


class ScratchLake:
    """The lake of one test, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        try:
            import sqlalchemy  # noqa: F401  # The catalog of the lake is in SQLite.
        except ImportError as error:
            raise explain_import(error) or error from error
        self.settings = ScratchSettings(
            warehouse=folder, contracts=folder / "contracts", engine="duckdb", memory="500MB"
        )
        self.tables = Lake(self.settings)
        self.stream = LakeStream(self)

    def panes(self, definition: Definition) -> Rows:
        """Return all rows of a definition's ledger, with retractions: a pipeline's panes, or the rows of another kind.

        They are in the order of their epochs; `writer` says whether a stream or a backfill wrote a row.
        """
        self.stream.settle()
        return all_rows(ledger_rows(definition, self.tables), f"what {definition.name} gave")

    def answers(self, definition: Definition) -> Rows:
        """Return the current answers of a pipeline, or the rows of another kind that stand."""
        self.stream.settle()
        return answer_rows(ledger_rows(definition, self.tables), definition.name)

    def late(self, definition: Definition) -> Rows:
        """Return the records that came too late for a definition, whether or not a backfill has counted them since.

        A ledger has the key, the event time and the window of a late record.
        """
        late, columns = late_in(definition, self.tables)
        return late_records(definition, late, columns)

    def check(self, *definitions: Definition) -> None:
        """Audit and replay definitions with all that they read. Raises `LakeDoubtError` if anything does not add up."""
        __tracebackhide__ = True
        self.stream.settle()
        faults = []
        for stage in {one.name: one for definition in definitions for one in chain(definition)}.values():
            found = audit(self.tables, stage)
            faults += [f"{stage.name}: {one.name}: {one.detail}" for one in found.checks if not one.ok]
            if stage.recomputable and not replay(self.tables, cast("Ranged", stage)).ok:
                faults.append(f"{stage.name}: a replay has other rows than the ledger")
        if faults:
            raise LakeDoubtError("\n".join(["the lake does not add up:", *faults]))

    def backfill(
        self, definition: Definition, first: Instant | None = None, last: Instant | None = None
    ) -> BackfillCounts:
        """Recompute a range of event time, as `tailrace backfill` does, and return what changed.

        Without `first` and `last`, the range is everything. The stream goes on from the corrected windows.
        """
        self.stream.settle()
        begin = BEGINNING if first is None else micros_of("first", first)
        end = END_OF_TIME if last is None else micros_of("last", last)
        done = backfill_stages(self.tables, cast("Ranged", definition), begin, end, spark=False)
        runs = [run for stage, own in done if stage.name == definition.name for run in own]
        return BackfillCounts(
            sum(run.changed for run in runs), sum(run.untouched for run in runs), sum(run.retracted for run in runs)
        )

    def close(self) -> None:
        """End the stream."""
        self.stream.close()


class LakeStream:
    """The stream of a test, which folds an epoch into a lake at each call."""

    def __init__(self, lake: ScratchLake) -> None:
        self.lake, self.clock = lake, ProcessingTime()
        self._cutter: EpochCutter | None = None
        self._landings: dict[str, RowLanding[pa.Table]] = {}
        self._group: FoldGroup | None = None
        self._definitions: tuple[Definition, ...] = ()
        self._offsets = dict[str, int]()

    def __call__(
        self,
        definitions: Definition | Sequence[Definition],
        records: Sequence[Record] | Mapping[str, Sequence[Record]] = (),
        *,
        complete: Instant | None = None,
        signals: tuple[str, ...] = (),
        allow_rejected: bool = False,
    ) -> None:
        """Fold an epoch of records into definitions, and into all that they read.

        Records are written as for `fold`. `complete` and `signals` are as in `Epoch`; the clock of the test says the
        time. Definitions that join later fold the earlier epochs first. If a record is rejected, nothing is landed,
        unless `allow_rejected` is true.
        """
        named = (definitions,) if isinstance(definitions, Definition) else tuple(definitions)
        cutter = self._started(named)
        before = len(cutter.cut.rejected)
        now = None if self.clock.micros is None else moment(self.clock.micros)
        cutter.add(Epoch(records, now, complete, signals), allow_rejected=allow_rejected)
        self._fold(cutter, cutter.cut.rejected[before:])

    def restart(self) -> None:
        """End the stream; the next epoch begins with what the tables hold, as after a crash."""
        if self._group is not None:
            self._group.close()
            self._group = None

    def settle(self) -> None:
        """Bring the answers up to date with the ledgers."""
        if self._group is not None:
            self._group.follow()
            self._group.settle()

    def close(self) -> None:
        """End the stream, and give back its leases."""
        self.restart()
        for landing in self._landings.values():
            landing.close()

    def _started(self, definitions: tuple[Definition, ...]) -> EpochCutter:
        logs = landed_logs(definitions)
        if self._cutter is None:
            self._cutter = EpochCutter(logs)
            for log in logs:
                first = next(iter(self._landings.values()), None)
                self._landings[log.name] = RowLanding(self.lake.tables, log, None if first is None else first.log)
        if unknown := [log.name for log in logs if log.name not in self._landings]:
            raise EpochsError(f"{', '.join(unknown)}: a stream lands all of its logs from its first epoch on")
        if self._group is None or definitions != self._definitions:
            self.restart()
            lease = next(iter(self._landings.values())).log
            self._group = FoldGroup(_no_spark, self.lake.tables, definitions, follow_every=1, landing=lease)
            self._definitions = definitions
            for _ in self._group.missed_epochs(len(self._cutter.cut.epochs) - 1):
                pass
        return self._cutter

    def _fold(self, cutter: EpochCutter, rejected: Sequence[RejectedRecord]) -> None:
        """Fold the cutter's last epoch, as a real stream does: staged, landed, and then published."""
        assert self._group is not None
        epoch, passed = cutter.cut.epochs[-1], dict[str, PassedEpoch]()
        for name, landing in self._landings.items():
            records, clock = epoch[name]
            log, progress = cutter.logs[name], cutter.progress[name]
            rows = self._rows(log, records, [one for one in rejected if one.log == name], clock)
            properties = {**clock_properties(clock), **dict(zip(READ, ("test", str(clock.epoch), ""), strict=True))}
            properties |= {PROGRESS: progress.text()} | ({IDLE: "true"} if progress.all_idle else {})
            if log.id_columns:
                properties[DUPLICATES] = str(cutter.cut.duplicates[name])
            landing.write(rows, properties)
            good = own_columns(rows.slice(0, len(records)))
            passed[name] = PassedEpoch.of(good, clock, idle=progress.all_idle)
            self.clock.reached = clock.processing_time
        reading, phases = self._group.landing(passed), Phases()
        self._group.stage(reading, phases)
        for landing in self._landings.values():
            landing.publish()
        self._group.publish(reading, phases)
        self._group.follow()

    def _rows(self, log: Log, records: Sequence[Record], rejected: Sequence[RejectedRecord], clock: Clock) -> pa.Table:
        """Return the rows of an epoch as they are landed: first the records, and then the rejected ones."""
        start = self._offsets.get(log.name, 0)
        count = len(records) + len(rejected)
        self._offsets[log.name] = start + count
        own: list[dict[str, Any]] = [dict(record) for record in records]
        own += [{"_error": one.reason, "_raw": shown(one.record).encode()} for one in rejected]
        arrived = moment(clock.processing_time)
        for place, row in enumerate(own, start):
            row |= {"_source": "test", "_offset": place, "_arrival": arrived}
        table = pa.Table.from_pylist(own, schema=schema_of(log))
        return table.append_column("_epoch", pa.repeat(pa.scalar(clock.epoch, pa.int64()), count))
